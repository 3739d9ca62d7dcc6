"""Chat templates for files without one, by architecture and by the control tokens present.

A format is used only if the vocabulary has every control token that it writes: no model was trained
on their text in ordinary tokens. The formats follow the models' own templates for a plain
conversation.
"""

from collections.abc import Collection
from dataclasses import dataclass

_LOOP = "{% for message in messages %}"
_END = "{% endfor %}"
# These formats have no system message: its text goes before the first question.
_MERGED_SYSTEM = (
    "{% set system = messages[0].content + '\\n\\n' if messages[0].role == 'system' else '' %}"
    "{% set rest = messages[1:] if system else messages %}"
)


@dataclass(frozen=True, slots=True)
class Format:
    """A conversation's format."""

    name: str
    tokens: tuple[str, ...]  # The control tokens that it writes.
    source: str  # In jinja2.


def _turns(name: str, tokens: tuple[str, ...], turn: str, reply: str, start: str = "") -> Format:
    """Return a format with a `turn` for each message and `reply` where the reply begins."""
    return Format(
        name,
        tokens,
        f"{start}{_LOOP}{turn}{_END}{{% if add_generation_prompt %}}{reply}{{% endif %}}",
    )


def _merge_system(
    name: str, tokens: tuple[str, ...], user: str, assistant: str, reply: str = ""
) -> Format:
    """Return a format in which the system's text goes before the first question."""
    turn = (
        "{% if message.role == 'assistant' %}" + assistant + "{% else %}"
        "{% set content = (system if loop.first else '') + message.content %}"
        + user
        + "{% endif %}"
    )
    source = f"{{{{ bos_token }}}}{_MERGED_SYSTEM}{{% for message in rest %}}{turn}{_END}"
    source += f"{{% if add_generation_prompt %}}{reply}{{% endif %}}"
    return Format(name, tokens, source)


_FORMATS = (
    _turns(
        "chatml",
        ("<|im_start|>", "<|im_end|>"),
        "{{ '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}",
        "{{ '<|im_start|>assistant\\n' }}",
    ),
    _turns(
        "phi4",
        ("<|im_start|>", "<|im_sep|>", "<|im_end|>"),
        "{{ '<|im_start|>' + message.role + '<|im_sep|>' + message.content + '<|im_end|>' }}",
        "{{ '<|im_start|>assistant<|im_sep|>' }}",
    ),
    _turns(
        "llama3",
        ("<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"),
        "{{ '<|start_header_id|>' + message.role + '<|end_header_id|>\\n\\n'"
        " + message.content | trim + '<|eot_id|>' }}",
        "{{ '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}",
        "{{ bos_token }}",
    ),
    _turns(
        "llama4",
        ("<|header_start|>", "<|header_end|>", "<|eot|>"),
        "{{ '<|header_start|>' + message.role + '<|header_end|>\\n\\n'"
        " + message.content | trim + '<|eot|>' }}",
        "{{ '<|header_start|>assistant<|header_end|>\\n\\n' }}",
        "{{ bos_token }}",
    ),
    _merge_system(
        "mistral",
        ("[INST]", "[/INST]"),
        "{{ '[INST] ' + content + '[/INST]' }}",
        "{{ ' ' + message.content + eos_token }}",
    ),
    # Llama 2 writes no control token but begin and end, so it is for models named for chatting.
    _merge_system(
        "llama2",
        (),
        "{{ (bos_token if not loop.first else '') + '[INST] ' + content + ' [/INST]' }}",
        "{{ ' ' + message.content + ' ' + eos_token }}",
    ),
    _merge_system(
        "gemma",
        ("<start_of_turn>", "<end_of_turn>"),
        "{{ '<start_of_turn>user\\n' + content | trim + '<end_of_turn>\\n' }}",
        "{{ '<start_of_turn>model\\n' + message.content | trim + '<end_of_turn>\\n' }}",
        "{{ '<start_of_turn>model\\n' }}",
    ),
    _turns(
        "gemma4",
        ("<|turn>", "<turn|>", "<|channel>", "<channel|>"),
        "{{ '<|turn>' + ('model' if message.role == 'assistant' else message.role) + '\\n'"
        " + message.content | trim + '<turn|>\\n' }}",
        # Empty reasoning: the model thinks only when told to.
        "{{ '<|turn>model\\n<|channel>thought\\n<channel|>' }}",
        "{{ bos_token }}",
    ),
    _turns(
        "phi3",
        ("<|user|>", "<|assistant|>", "<|end|>"),
        "{{ '<|' + message.role + '|>\\n' + message.content + '<|end|>\\n' }}",
        "{{ '<|assistant|>\\n' }}",
    ),
    _turns(
        "glm4",
        ("[gMASK]", "<sop>", "<|user|>", "<|assistant|>"),
        "{{ '<|' + message.role + '|>\\n' + message.content }}",
        "{{ '<|assistant|>\\n' }}",
        "[gMASK]<sop>",
    ),
    _turns(
        "command-r",
        (
            "<|START_OF_TURN_TOKEN|>", "<|END_OF_TURN_TOKEN|>", "<|SYSTEM_TOKEN|>",
            "<|USER_TOKEN|>", "<|CHATBOT_TOKEN|>",
        ),
        "{{ '<|START_OF_TURN_TOKEN|><|' + {'assistant': 'CHATBOT', 'system': 'SYSTEM'}"
        ".get(message.role, 'USER') + '_TOKEN|>' + message.content | trim"
        " + '<|END_OF_TURN_TOKEN|>' }}",
        "{{ '<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>' }}",
        "{{ bos_token }}",
    ),
    _turns(
        "granite",
        ("<|start_of_role|>", "<|end_of_role|>", "<|end_of_text|>"),
        "{{ '<|start_of_role|>' + message.role + '<|end_of_role|>' + message.content"
        " + '<|end_of_text|>\\n' }}",
        "{{ '<|start_of_role|>assistant<|end_of_role|>' }}",
    ),
    _turns(
        "deepseek",
        ("<｜User｜>", "<｜Assistant｜>", "<｜end▁of▁sentence｜>"),
        "{% if message.role == 'system' %}{{ message.content }}"
        "{% elif message.role == 'assistant' %}"
        "{{ '<｜Assistant｜>' + message.content + '<｜end▁of▁sentence｜>' }}"
        "{% else %}{{ '<｜User｜>' + message.content }}{% endif %}",
        "{{ '<｜Assistant｜>' }}",
        "{{ bos_token }}",
    ),
    _turns(
        "exaone",
        ("[|system|]", "[|user|]", "[|assistant|]", "[|endofturn|]"),
        "{{ '[|' + message.role + '|]' + message.content"
        " + ('\\n' if message.role == 'user' else '[|endofturn|]\\n') }}",
        "{{ '[|assistant|]' }}",
    ),
    _turns(
        "harmony",
        ("<|start|>", "<|message|>", "<|end|>"),
        "{{ '<|start|>' + message.role + '<|message|>' + message.content + '<|end|>' }}",
        "{{ '<|start|>assistant' }}",
    ),
)  # fmt: skip
_BY_NAME = {format_.name: format_ for format_ in _FORMATS}

# Formats of the models of each architecture, the most specific first. "chatml" is the last for all.
_BY_ARCHITECTURE = {
    architecture: formats.split()
    for architectures, formats in (
        ("llama", "llama3 mistral deepseek exaone granite"),
        ("llama4", "llama4"),
        ("mistral3", "mistral"),
        ("gemma gemma2 gemma3 gemma3n", "gemma"),
        ("gemma4", "gemma4"),
        ("phi3", "phi3 phi4"),
        ("phimoe", "phi3"),
        ("glm4 glm4moe chatglm", "glm4"),
        ("command-r cohere2", "command-r"),
        ("granite granitemoe granitehybrid", "granite"),
        ("deepseek deepseek2 qwen2 qwen3", "deepseek"),
        ("exaone exaone4", "exaone"),
        ("gpt-oss", "harmony"),
    )
    for architecture in architectures.split()
}


def choose_fallback(
    architecture: str | None, controls: Collection[str], names: str
) -> Format | None:
    """Return the format for a file without a chat template, None if none fits.

    Args:
        architecture: `general.architecture`.
        controls: texts of the control and user-defined tokens.
        names: the file's names of the model, for formats without control tokens.

    """
    if architecture is None:
        return None
    for name in (*_BY_ARCHITECTURE.get(architecture, ()), "chatml"):
        format_ = _BY_NAME[name]
        if all(token in controls for token in format_.tokens):
            return format_
    named = names.lower()
    if architecture == "llama" and ("chat" in named or "instruct" in named):
        return _BY_NAME["llama2"]
    return None
