"""What a model says with adversarial drafts, and what it says without.

One `Cell` is one temperature and prompt, with several drafters: adversaries, and a random
prediction head, alone or asked by `auto`, which reads the states of the rows that are rolled back.
Where `auto` asks it, it guesses only half of the tokens. For Gemma 4 it is an assistant, which
reads their keys and values as well, and where states between layers are read an EAGLE-3 head, and behind copies a DFlash 2 or a
DSpark head. Tests judge cells; scripts/describe_rollback.py prints them.
"""

from dataclasses import dataclass, field
from itertools import product

import mlx.core as mx
from assistants import random_assistant
from dflash_heads import random_dflash2, random_dspark
from eagle_heads import random_eagle
from family_models import build_family, variant_of
from identity import margin
from markov_heads import foreign_head
from mlx_lm.generate import generate_step
from tiny_families import FAMILIES, WINDOW
from tiny_models import ADVERSARIES, adversary, generate, prompt_of, sampler_of

from akunu_py.drafting import AutoDrafter, PlainDrafter
from akunu_py.drafting.prediction_head import PredictionHeadDrafter
from akunu_py.drafting.text_first import TextFirstDrafter
from akunu_py.models.cache import make_caches
from akunu_py.models.heads import make_head_model
from akunu_py.models.heads.assistant import sources_in
from akunu_py.models.heads.families import BETWEEN_LAYERS
from akunu_py.models.heads.head import DraftOutput, some_rows
from akunu_py.models.heads.look_ahead import LookAheadHead
from akunu_py.models.hidden_states import StateTap
from akunu_py.models.session import Session
from akunu_py.values.types import GenerationConfig

SEED = 7
HEAD, AUTO = "mtp", "auto"
WITHOUT_HEADS = ("talkie",)
"""Families without a last norm, whose states heads cannot read."""
LOOKING_AHEAD = ("qwen2", "qwen3_moe")
"""Families whose head alone is look-ahead embeddings; EAGLE-3 drafts for the others like them."""
"""A prediction head, and `auto` with one."""
SHORT, LONG, LONGER = 5, 40, 340
"""Prompts shorter than a window, longer than two, and longer than the one of `LONG_WINDOW`."""
LONG_WINDOW = "llama, window of 300"
"""The family whose cache grows in steps before it wraps; its text is long, so it has fewer cells."""
EXPERTS = frozenset(
    name
    for name in FAMILIES
    if "experts" in name or "moe" in name or "oss" in name
) | {
    "bailing_hybrid", "deepseek_v3", "deepseek_v32", "deepseek_v41", "jamba", "kimi_k3",
    "kimi_linear", "laguna", "llama4", "longcat_flash", "longcat_flash_ngram", "mellum",
    "mimo_v2_flash", "minimax_m3", "mistral4", "mixtral", "qwen3_next", "step3p5",
}  # fmt: skip
"""Families whose mixtures MLX computes in float32 alone on a CPU."""


@dataclass(frozen=True)
class Setting:
    """What one cell is run with."""

    temperature: float
    prompt_size: int
    drafters: tuple[str, ...]


def settings_of(name: str, dtype: mx.Dtype) -> list[Setting]:
    """All adversaries, greedy and sampled, with both prompts; a part of it for long texts."""
    if name == LONG_WINDOW:
        return [Setting(0.0, SHORT, ("half",)), Setting(0.8, LONGER, ("random",))]
    heads = () if name in WITHOUT_HEADS else (HEAD, AUTO)
    if dtype == mx.float32:
        return [
            Setting(temperature, size, (*ADVERSARIES, *(heads[:1] if size == SHORT else heads[1:])))
            for temperature, size in product((0.0, 0.8), (SHORT, LONG))
        ]
    return [Setting(0.0, size, ("half", "random")) for size in (SHORT, LONG)] + [
        Setting(0.8, LONG, ("half",))
    ]


@dataclass(frozen=True)
class Difference:
    """The first token that is another than without drafts, and how near the two best were there."""

    drafter: str
    index: int
    margin: float


@dataclass
class Cell:
    """What came out; `drafted` tokens in all were fed, and `replies` made with drafts."""

    tokens: list[int]
    replies: int = 0
    drafted: int = 0
    differences: list[Difference] = field(default_factory=list)


class Family:
    """A model and its session, in which cells are run."""

    def __init__(self, name: str, dtype: mx.Dtype = mx.float32) -> None:
        self.model = build_family(name, dtype)
        self.dtype = dtype
        self.kv_bits = variant_of(name).kv_bits
        # With sinks mlx-lm's text depends on the passes of the prompt; by single rows it is right.
        self.sinks = variant_of(name).sinks
        self.session = Session(self.model, context=4096, kv_bits=self.kv_bits)
        # Two windows, behind that which a prompt may fill; and four and a half of the long one.
        self.num_tokens = 1350 if name == LONG_WINDOW else 2 * WINDOW
        self._family = variant_of(name).family
        self._taken_between = self._family in BETWEEN_LAYERS
        self._heads = {}

    def run(self, setting: Setting) -> Cell:
        config = GenerationConfig(temperature=setting.temperature)
        prompt = prompt_of(setting.prompt_size)
        cell = Cell(self.plain(prompt, config))
        for kind in setting.drafters:
            drafter = self.drafter(kind, prompt + cell.tokens, setting.prompt_size)
            found = self.reply(prompt, config, drafter)
            cell.replies += 1
            cell.drafted += drafter.drafted
            pairs = zip(found, cell.tokens, strict=True)
            index = next((i for i, (ours, theirs) in enumerate(pairs) if ours != theirs), None)
            if index is not None:
                before = [*prompt, *cell.tokens[:index]]
                distance = margin(self.session.logits(before)[-1], before, config, SEED)
                cell.differences.append(Difference(kind, index, distance))
        return cell

    def drafter(self, kind: str, truth: list[int], seed: int):
        """A drafter that counts; `truth` is the text without drafts."""
        if kind not in {HEAD, AUTO}:
            return _Counting(adversary(kind, truth, seed))
        size = self.session.vocabulary_size
        if kind not in self._heads:
            self._heads[kind] = self._head(size, alone=kind == HEAD)
            self._heads[kind].set_dtype(self.dtype)
        model = make_head_model(self._heads[kind], context=4096, vocabulary_size=size)
        if kind == HEAD:
            return _CountingHead(model)
        return _CountingAuto(AutoDrafter(), PredictionHeadDrafter(model))

    def _head(self, size: int, *, alone: bool):
        """Return a random head or assistant that drafts `alone`, or behind copies.

        Of a kind that can, one of the two heads guesses half the tokens.
        """
        if sources_in(self.model):
            return random_assistant(self.model)
        if self._family in LOOKING_AHEAD and alone:
            head = LookAheadHead(self.model, 3)
            head.look_ahead = mx.random.normal(head.look_ahead.shape, key=mx.random.key(2))
            return head
        if self._taken_between and alone:
            return random_eagle(self.model, vocabulary=size // 2)
        if self._taken_between:
            make = (random_dflash2, random_dspark)[BETWEEN_LAYERS.index(self._family) % 2]
            return make(self.model)
        tap = StateTap(self.model, "normed")
        with tap.listening():
            self.model(mx.zeros((1, 1), dtype=mx.int32))
        head = foreign_head(tap.states.shape[-1], size)
        if not alone:
            ids = mx.arange(0, size, 2)
            head.lm_head = DraftOutput(some_rows(head.lm_head, ids), ids, size)
        return head

    def plain(self, prompt: list[int], config: GenerationConfig) -> list[int]:
        """The text without drafts: that of mlx-lm's own loop.

        Drawn from bfloat16 it is the session's: mlx-lm's loop gives a sampler log-probabilities
        rounded to that type, akunu's samples from exact ones.
        """
        greedy = config.temperature == 0
        if not greedy and self.dtype != mx.float32:
            return self.reply(prompt, config, PlainDrafter())
        sampler = sampler_of(config, self.session.vocabulary_size, SEED)
        position = len(prompt) - 1

        def choose(logprobs: mx.array) -> mx.array:
            nonlocal position
            position += 1
            return sampler.choose(logprobs, position)

        # The loop would quantize caches only after the prompt, so ready ones are given.
        caches = make_caches(self.model, self.kv_bits) if self.kv_bits else None
        steps = generate_step(
            mx.array(prompt), self.model, max_tokens=self.num_tokens, prompt_cache=caches,
            sampler=None if greedy else choose, prefill_step_size=1 if self.sinks else 512,
        )  # fmt: skip
        return [token for token, _ in steps]

    def reply(self, prompt: list[int], config: GenerationConfig, drafter) -> list[int]:
        return generate(
            self.session, prompt, config, drafter, max_tokens=self.num_tokens, seed=SEED
        )


class _CountingHead(PredictionHeadDrafter):
    """Counts what a head proposes."""

    drafted = 0

    def propose(self, limit):
        draft = super().propose(limit)
        self.drafted += len(draft)
        return draft


class _CountingAuto(TextFirstDrafter):
    """Counts what `auto` with a head proposes."""

    drafted = 0

    def propose(self, limit):
        draft = super().propose(limit)
        self.drafted += len(draft)
        return draft


class _Counting:
    """Counts what a drafter proposes."""

    def __init__(self, drafter) -> None:
        self.observe = drafter.observe
        self._drafter = drafter
        self.drafted = 0

    def propose(self, limit):
        draft = self._drafter.propose(limit)
        self.drafted += len(draft)
        return draft
