"""MLX model folders in the sizes of a unit test."""

import json

import mlx.core as mx
from family_models import Variant, build_family
from mlx import nn
from mlx.utils import tree_flatten
from tiny_families import FAMILIES
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from akunu_py.gguf.architectures import read_plan
from akunu_py.gguf.reader import GGUFFile
from akunu_py.models.load import LoadOptions, load_model


def write_folder(folder, tiny_gguf, **config):
    """An MLX model folder with the weights of the tiny GGUF file, and a token for each byte."""
    folder.mkdir()
    loaded = load_model(tiny_gguf, LoadOptions(weights="dense"))
    mx.save_safetensors(
        str(folder / "model.safetensors"), dict(tree_flatten(loaded.model.parameters()))
    )
    with GGUFFile.open(tiny_gguf) as file:
        arguments = read_plan(file.metadata, file.tensors).arguments
    (folder / "config.json").write_text(json.dumps({**arguments, **config}))
    write_tokenizer(folder)
    return folder


def write_family_folder(folder, name, *, bits=None):
    """An MLX model folder of a random model of a family, with a token for each byte."""
    folder.mkdir()
    # One more, to end replies.
    changes = {"vocab_size": 257}
    model = build_family(Variant(name, changes=tuple(changes.items())))
    if bits:
        nn.quantize(model, group_size=32, bits=bits)
        changes["quantization"] = {"group_size": 32, "bits": bits}
    mx.save_safetensors(str(folder / "model.safetensors"), dict(tree_flatten(model.parameters())))
    module, arguments = FAMILIES[name]
    config = {"model_type": module, "eos_token_id": 256, **arguments, **changes}
    (folder / "config.json").write_text(json.dumps(config))
    write_tokenizer(folder)
    return folder


def write_tokenizer(folder):
    """A token for each byte, and a chat template."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE({letter: id_ for id_, letter in enumerate(alphabet)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.save(str(folder / "tokenizer.json"))
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "</s>",
        "chat_template": "{% for m in messages %}{{ m['content'] }}\n{% endfor %}",
    }  # fmt: skip
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))


def change_json(path, **entries):
    """Set entries of the object in a JSON file."""
    path.write_text(json.dumps({**json.loads(path.read_text()), **entries}))


def change_id(folder, letter, token):
    """Give a letter of the folder's tokenizer another id."""
    path = folder / "tokenizer.json"
    content = json.loads(path.read_text())
    content["model"]["vocab"][letter] = token
    path.write_text(json.dumps(content))
