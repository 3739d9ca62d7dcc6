"""`akunu bench alpha`: makes texts, sets up sources and measures acceptance."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from akunu_lab.alpha.measure import measure_setting
from akunu_lab.alpha.report import AlphaReport, AlphaSetting, Prediction
from akunu_lab.alpha.sources import (
    AlphaSource,
    ContextSource,
    CorpusSource,
    DrafterSource,
    DraftModelSource,
    UniformSource,
    fitted_on_other_half,
)
from akunu_lab.alpha.speed import measure_speed
from akunu_lab.alpha.texts import MeasuredText, generate_texts
from akunu_lab.counts.corpus_model import CorpusCounts
from akunu_lab.counts.fitting import fit_counts, text_pieces
from akunu_lab.study.store import ItemStore
from akunu_py.api import ConfigError, DrafterKind, Engine, GenerationConfig, Prompt, make_drafter

OTHER_REPLIES = "replies at the same temperature to the other half of the prompts"
SPEED_PROMPTS = 3
_NGRAM = "drafter ngram"


def run_alpha(
    engine: Engine,
    prompts: Sequence[Prompt],
    *,
    draft: Engine | None = None,
    temperatures: Sequence[float] = (0.0, 1.0),
    num_tokens: int = 10_000,
    lenience: Sequence[float] = (),
    corpus: Path | None = None,
    seed: int = 0,
    store: ItemStore | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> AlphaReport:
    """Measure the acceptance of each source of q, at each temperature on the model's own texts.

    Unigrams and bigrams are fitted on `corpus`, a text file, or without one on the replies to the
    other half of the prompts (halves by a hash of the prompt's id), never on the measured text.
    `progress` is called with finished and all steps; a token made and a token measured are steps.
    `store` keeps each temperature's figures, also from an interrupted run. After an interrupt the
    report covers the finished temperatures.

    Raises ConfigError for options out of range, a corpus that cannot be read or a draft model with
    another vocabulary, ContextOverflowError for a prompt that does not fit.
    """
    check_alpha_options(temperatures, num_tokens, lenience, seed)
    fitted = None
    if corpus is not None:
        fitted = fit_counts(text_pieces(corpus, engine.tokenizer), engine.vocabulary_size)
    model = None if draft is None else DraftModelSource(draft, engine)
    total = 2 * num_tokens * len(temperatures)
    settings: list[AlphaSetting] = []
    store = ItemStore(None, {}) if store is None else store

    def measured(temperature: float) -> AlphaSetting:
        before = 2 * num_tokens * len(settings)
        texts = generate_texts(
            engine,
            prompts,
            temperature=temperature,
            num_tokens=num_tokens,
            seed=seed,
            progress=_from(progress, before, total),
        )
        sources = [*_count_sources(engine, texts, fitted), *([] if model is None else [model])]
        return measure_setting(
            engine,
            texts,
            sources,
            temperature=temperature,
            lenience=lenience,
            progress=_from(progress, before + num_tokens, total),
        )

    finished = True
    try:
        for temperature in temperatures:
            key = f"temperature {temperature:g}"
            setting = store.get(key, AlphaSetting)
            if setting is None:
                setting = measured(temperature)
                store.put(key, setting)
            settings.append(setting)
    except KeyboardInterrupt:
        finished = False
    return AlphaReport(
        corpus=OTHER_REPLIES if corpus is None else str(corpus),
        seed=seed,
        num_tokens=num_tokens,
        settings=tuple(settings),
        finished=finished,
    )


def _from(
    progress: Callable[[int, int], None] | None, start: int, total: int
) -> Callable[[int], None]:
    """Return a callback that counts from this step."""

    def tell(done: int) -> None:
        if progress:
            progress(start + done, total)

    return tell


def _count_sources(
    engine: Engine, texts: Sequence[MeasuredText], fitted: CorpusCounts | None
) -> list[AlphaSource]:
    """Return the sources without a model; unigrams and bigrams come from a corpus or the texts."""
    size = engine.vocabulary_size
    counts = fitted_on_other_half(texts, size) if fitted is None else {0: fitted, 1: fitted}
    return [
        UniformSource(),
        CorpusSource(1, counts),
        CorpusSource(2, counts),
        ContextSource(size),
        DrafterSource(
            "copy from context", lambda: make_drafter("lookup", num_draft_tokens=1), size
        ),
        DrafterSource(_NGRAM, lambda: make_drafter("ngram", num_draft_tokens=1), size),
    ]


def with_predictions(
    report: AlphaReport,
    engine: Engine,
    prompts: Sequence[Prompt],
    *,
    progress: Callable[[int, int], None] | None = None,
) -> AlphaReport:
    """Return the report with the speeds that its acceptances predict, and measured speeds.

    The drafters are ngram and, if there is one, the draft model, which the engine must have. Each
    uses its default number of tokens, at every temperature of the report. The first
    `SPEED_PROMPTS` prompts of each category are used. `progress` is called with finished and all
    replies. Raises as `akunu_lab.alpha.speed.measure_speed` does.
    """
    kept = _first_of_each(prompts, SPEED_PROMPTS)
    drafters = {"ngram": _NGRAM}
    sources = (source for setting in report.settings for source in setting.sources)
    if any(source.name == DraftModelSource.name for source in sources):
        drafters["draft-model"] = DraftModelSource.name
    total = 2 * len(kept) * len(drafters) * len(report.settings)
    predictions: list[Prediction] = []
    for number, setting in enumerate(report.settings):
        figures = {source.name: source for source in setting.sources}
        predictions += measure_speed(
            engine,
            kept,
            [
                (name, DrafterKind.named(name).num_draft_tokens, figures[source])
                for name, source in drafters.items()
            ],
            temperature=setting.temperature,
            seed=report.seed,
            progress=_from(progress, number * total // len(report.settings), total),
        )
    return replace(report, predictions=tuple(predictions))


def check_alpha_options(
    temperatures: Sequence[float], num_tokens: int, lenience: Sequence[float], seed: int
) -> None:
    """Raise ConfigError for an option of `run_alpha` out of range."""
    if not temperatures:
        raise ConfigError("there is no temperature to measure at; give at least one")
    for temperature in temperatures:
        GenerationConfig(temperature=temperature, seed=seed)
    if num_tokens < 1:
        raise ConfigError(f"the number of tokens is {num_tokens}; give 1 or more")
    for share in lenience:
        if not 0 < share <= 1:
            raise ConfigError(f"lenience is {share!r}; give a number above 0, at most 1")


def _first_of_each(prompts: Sequence[Prompt], limit: int) -> list[Prompt]:
    """Return the first `limit` prompts of each category."""
    counts = Counter[str]()
    kept: list[Prompt] = []
    for prompt in prompts:
        counts[prompt.category] += 1
        if counts[prompt.category] <= limit:
            kept.append(prompt)
    return kept
