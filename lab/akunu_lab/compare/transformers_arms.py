"""Hugging Face transformers on the dequantised weights: plain, and with its prompt lookup."""

import os
from collections.abc import Sequence
from importlib.metadata import version
from typing import Any

import numpy as np

from akunu_lab.compare.arm import EXTRA, ComparedModel, Program, Skipped, UnavailableError
from akunu_lab.compare.plain_decoder import PlainDecoder, plain_decoder
from akunu_lab.compare.recorder import Recorder
from akunu_lab.install import install_command
from akunu_py.api import Arm, ConfigError, Item, MeasuredReply

PLAIN = "transformers-plain"
_LOOKUP = "transformers-lookup"
_CLASSES = {"llama": "Llama", "qwen2": "Qwen2", "qwen3": "Qwen3"}
_NUM_DRAFT_TOKENS = 10

_TOLERANCES = {True: 1e-3, False: 5e-2}
"""Largest difference of logits from akunu's, in standard deviations, by whether akunu computes in
float32 (True) or in 16 bits (False)."""


class _Stream:
    """Takes tokens from `generate`: first the prompt, then the tokens of each pass.

    `rows` is the size of the pass that runs.
    """

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self.rows = self._known = 0

    def put(self, value: Any) -> None:
        """Take the tokens of a pass."""
        tokens = value.reshape(-1).tolist()
        if not self._known:
            self._known = len(tokens)
            return
        drafted = max(0, self.rows - self._known)
        self._recorder.take(tokens, num_drafted=drafted, num_accepted=len(tokens) - 1)
        self._known = 1

    def end(self) -> None:
        """Do nothing."""


class TransformersArm:
    """Replies of `generate`; `num_draft_tokens` is for its prompt lookup, None for none."""

    plain = PLAIN
    steady = True

    def __init__(
        self,
        name: str,
        about: str,
        model: Any,
        num_draft_tokens: int | None,
        subject: ComparedModel,
    ) -> None:
        self.name = name
        self.version = f"transformers {version('transformers')}, torch {version('torch')}"
        self.about = about
        self._model = model
        self._num_draft_tokens = num_draft_tokens
        self._max_tokens, self._end_ids = subject.max_tokens, subject.end_ids

    def forget(self) -> None:
        """Need nothing: it looks up the prompt of a reply alone."""

    def reply(self, item: Item) -> MeasuredReply:
        import torch  # an extra
        from transformers import GenerationConfig

        config = GenerationConfig(
            max_new_tokens=self._max_tokens,
            do_sample=False,
            eos_token_id=sorted(self._end_ids) or None,
            pad_token_id=min(self._end_ids, default=0),
            prompt_lookup_num_tokens=self._num_draft_tokens,
        )
        recorder = Recorder(self._max_tokens, self._end_ids)
        stream = _Stream(recorder)

        def count(_module: Any, _args: Any, options: dict[str, Any]) -> None:
            stream.rows = int(options["input_ids"].shape[-1])

        hook = self._model.register_forward_pre_hook(count, with_kwargs=True)
        try:
            recorder.start()
            ids = torch.tensor([item.prompt], device=self._model.device)
            with torch.inference_mode():
                self._model.generate(
                    ids,
                    attention_mask=torch.ones_like(ids),
                    generation_config=config,
                    streamer=stream,
                )
        finally:
            hook.remove()
        return recorder.reply()

    def close(self) -> None:
        self._model = None


def make_arms(subject: ComparedModel) -> Sequence[Arm | Skipped]:
    """Return both arms over one model, after comparing its logits with akunu's.

    Raises UnavailableError if torch is not installed, for another family of models, for a model
    that is too large, and for logits that differ.
    """
    try:
        import torch  # an extra
        import transformers  # noqa: F401
    except ImportError as error:
        raise UnavailableError(f"torch is not installed: {install_command(EXTRA)}") from error
    loaded = subject.load()
    needed = 4 * loaded.description.parameters
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if needed > memory / 2:
        raise UnavailableError(
            f"its float32 weights take {needed / 1e9:.1f} GB, more than half of the memory"
        )
    try:
        with loaded, loaded.lend("its weights are handed over") as lent:
            decoder = plain_decoder(lent.model, lent.dense_arrays())
    except ConfigError as error:
        raise UnavailableError(f"its weights cannot be handed over: {error}") from error
    model = _build(decoder)
    device = _device(torch) if subject.on_gpu else "cpu"
    if device == "cpu":
        torch.set_num_threads(subject.num_threads)
    model.to(device)
    difference = _difference(model, subject)
    if not difference <= _TOLERANCES[decoder.float32]:
        raise UnavailableError(
            f"its logits lie up to {difference:.2g} standard deviations from akunu's, more than "
            f"{_TOLERANCES[decoder.float32]:g}: it would not be the same model"
        )
    where = f"{torch.get_num_threads()} threads" if device == "cpu" else device
    about = (
        f"dequantised weights, float32, {where}; "
        f"logits within {difference:.1g} standard deviations of akunu's"
    )
    drafts = f"{about}, up to {_NUM_DRAFT_TOKENS} drafted"
    return [
        TransformersArm(PLAIN, about, model, None, subject),
        TransformersArm(_LOOKUP, drafts, model, _NUM_DRAFT_TOKENS, subject),
    ]


def _build(decoder: PlainDecoder) -> Any:
    """Return the model as Hugging Face's class, in float32."""
    import torch
    import transformers

    name = _CLASSES[decoder.model_type]
    config = getattr(transformers, f"{name}Config")(**decoder.config)
    model = getattr(transformers, f"{name}ForCausalLM")(config)
    weights = {path: torch.from_numpy(array) for path, array in decoder.arrays.items()}
    missing, unexpected = model.load_state_dict(weights, strict=False, assign=True)
    # Tied weights are stored once.
    tied = {"lm_head.weight"} if decoder.config["tie_word_embeddings"] else set()
    if set(missing) - tied or unexpected:
        raise UnavailableError(
            f"its class has other parameters: {', '.join([*missing, *unexpected][:4])}"
        )
    model.tie_weights()
    rotary = model.model.rotary_emb
    rotary.inv_freq = torch.from_numpy(decoder.inverse_frequencies)
    rotary.attention_scaling = 1.0
    return model.eval()


def _device(torch: Any) -> str:
    if torch.backends.mps.is_available():
        return "mps"
    return "cuda" if torch.cuda.is_available() else "cpu"


def _difference(model: Any, subject: ComparedModel) -> float:
    """Return the largest difference of its logits from akunu's, in their standard deviations."""
    import torch

    with torch.inference_mode():
        ids = torch.tensor([subject.probe], device=model.device)
        theirs = model(ids).logits[0].float().cpu().numpy()
    ours = subject.logits[:, : theirs.shape[1]]
    return float(np.abs(theirs - ours).max() / ours.std())


TRANSFORMERS = Program("transformers", (PLAIN, _LOOKUP), make_arms)
