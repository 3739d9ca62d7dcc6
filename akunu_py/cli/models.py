"""`akunu models`: models on this machine and on the hub."""

import click

from akunu_py.cli.group import CommandGroup

_LATER = {
    "alias": "akunu_py.cli.model_list:alias",
    "convert": "akunu_py.cli.model_convert:convert",
    "list": "akunu_py.cli.model_list:list_models",
    "path": "akunu_py.cli.model_store:path",
    "pull": "akunu_py.cli.model_store:pull",
    "rm": "akunu_py.cli.model_store:remove",
    "search": "akunu_py.cli.model_list:search",
    "show": "akunu_py.cli.model_show:show",
}


@click.group(cls=CommandGroup, lazy=_LATER)
def models() -> None:
    """Search, download, inspect, alias, convert and delete models.

    A model's NAME is a path, an alias, a short name such as qwen3:4b (akunu models search lists
    them), or one on the Hugging Face hub: hf:OWNER/REPO, hf:OWNER/REPO:QUANT for one GGUF
    quantization of a repository, OWNER/REPO/FILE.gguf, or the address of a page there. Downloads go
    to the hub's cache (HF_HUB_CACHE), which other programs share. HF_TOKEN gives access to private
    models; HF_HUB_OFFLINE=1 forbids downloads.

    \b
    Examples:
      akunu models search qwen3
      akunu models pull qwen3:0.6b
      akunu models alias qwen hf:unsloth/Qwen3-0.6B-GGUF:Q4_K_M
      akunu models show qwen --context 32768
      akunu chat qwen
    """  # noqa: D301 - \b keeps click from wrapping the examples
