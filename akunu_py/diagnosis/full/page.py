"""The report as a Markdown page that explains each figure."""

from collections.abc import Iterator, Sequence
from statistics import median

from akunu_py.bench.bootstrap import LEAST_SESSIONS, NOT_ENOUGH
from akunu_py.bench.speed_report import BASELINE
from akunu_py.bench.tables import Cell, Column, Table, escape_markdown
from akunu_py.diagnosis.advice import size
from akunu_py.diagnosis.full.conclusions import TITLES
from akunu_py.diagnosis.full.privacy import without_paths
from akunu_py.diagnosis.full.report import (
    ArmSpeed,
    Costs,
    Load,
    Memory,
    PartName,
    Prefill,
    Replies,
    Report,
    Rows,
    SizeCost,
    Speed,
    Start,
)

_ARMS = {BASELINE: "mlx-lm's loop", "none": "plain decoding", "auto": "decoding with drafts"}
_REPLIES: tuple[PartName, ...] = ("greedy", "sampled", "reproducible")
_MOST_DIFFERENCES = 10
_DRAFTS = (1, 4, 16)
"""Lengths of the drafts in the summary; the table has all."""

_NEVER = "never"
_ENDS = {
    "finished": "The last table says what there was no time for, and why a part is missing.",
    "interrupted": "**Interrupted:** the page has what was measured until then.",
    "unfinished": "**Unfinished:** the process is still running, or it was killed during the part "
    "that the last table calls running.",
}


def page(report: Report) -> str:
    """Return the page, without any path, whatever texts from outside contain."""
    sections = [
        _head(report),
        _in_short(report),
        _machine(report),
        _same_text(report),
        _passes(report),
        _speed(report),
        _waiting(report),
        _memory(report),
        _parts(report),
    ]
    return without_paths("\n\n".join(section.strip() for section in sections if section)) + "\n"


def summary(report: Report) -> list[str]:
    """Return the answers of the report as sentences."""
    return [*_text_answers(report), *_speed_answers(report), *_time_answers(report)]


def _head(report: Report) -> str:
    return (
        "# akunu doctor --full\n\n"
        f"Measured on {escape_markdown(report.started)}. It took {report.seconds:.0f} s; about "
        f"{report.limit_s:.0f} s were planned. {_ENDS[report.state]}\n\n"
        "This page contains no paths, no user or host names, and none of your text: the prompts "
        "ship with akunu. Times and speeds depend on what else this machine was doing. Every ratio "
        "is followed by its 95 % interval, from resampled prompts or rounds; with fewer than "
        f'{LEAST_SESSIONS} of them the page says "{NOT_ENOUGH}" and gives no ratio.'
    )


def _in_short(report: Report) -> str:
    lines = ["## In short", ""]
    lines += [f"- {escape_markdown(line)}" for line in summary(report)]
    if report.findings:
        lines += ["", "Findings:", ""]
    for finding in report.findings:
        said = f"{finding.text}. {finding.advice}"
        lines.append(f"- **{finding.severity}**: {escape_markdown(said)}")
    return "\n".join(lines)


def _text_answers(report: Report) -> Iterator[str]:
    rows = report.figures("rows", Rows)
    if rows is not None:
        yield (
            "Rows of a pass are bit-equal to rows fed alone, at the beginning of a text"
            f"{f' and behind {rows.context:,} tokens' if rows.context else ''}, so drafting should "
            "not change any token there."
            if rows.equal and not rows.different_sizes
            else "Rows of a pass are not bit-equal to rows fed alone, so drafting can change the "
            "choice between two tokens that are almost equally likely."
        )
    for name in _REPLIES:
        replies = report.figures(name, Replies)
        if replies is not None and replies.prompts:
            yield (
                f"{replies.identical} of {replies.prompts} {name} replies are the same with and "
                "without drafting."
            )


def _speed_answers(report: Report) -> Iterator[str]:
    speed = report.figures("speed", Speed)
    for arm in () if speed is None else speed.arms:
        if arm.arm == BASELINE:
            continue
        found = f"{_ratio(arm)} times the speed of mlx-lm's loop"
        if arm.ratio is None:
            found = f"{NOT_ENOUGH} ({arm.pairs}) to compare with mlx-lm's loop"
        yield f"{_ARMS[arm.arm].capitalize()}, {arm.category} prompts: {found}."
    costs = report.figures("costs", Costs)
    if costs is not None:
        yield from _which_drafts_pay(costs)


def _which_drafts_pay(costs: Costs) -> Iterator[str]:
    for found in costs.sizes:
        if found.rows - 1 not in _DRAFTS or found.cost is None:
            continue
        tokens = f"A draft of {found.rows - 1} token{'s' if found.rows > 2 else ''}"
        low, high = _confidence(found.pays_from_low), _confidence(found.pays_from_high)
        if found.pays_from is None:
            yield f"{tokens} never saves time ({low} to {high})."
        else:
            yield (
                f"{tokens} saves time if each token is right with a probability above "
                f"{_confidence(found.pays_from)} ({low} to {high})."
            )


def _confidence(least: float | None) -> str:
    return _NEVER if least is None else f"{least:.0%}"


def _ratio(found: ArmSpeed | SizeCost) -> str:
    """Return a ratio with its interval, or a remark that there is none."""
    ratio = found.ratio if isinstance(found, ArmSpeed) else found.cost
    if ratio is None or found.low is None or found.high is None:
        return NOT_ENOUGH
    return f"{ratio:.2f} ({found.low:.2f} to {found.high:.2f})"


def _time_answers(report: Report) -> Iterator[str]:
    start, prefill = report.figures("start", Start), report.figures("prefill", Prefill)
    if start is not None:
        yield f"A new process gives its first token after {median(start.seconds):.1f} s."
    if prefill is not None:
        longest = prefill.lengths[-1]
        speed = longest.tokens / median(longest.seconds)
        yield (
            f"A prompt of {longest.tokens:,} tokens is read at {speed:.0f} tokens/s and takes "
            f"{size(longest.peak_bytes)} of memory in all."
        )


def _machine(report: Report) -> str:
    machine, model = report.machine, report.model
    memory = machine.memory_bytes
    rows: list[tuple[Cell, ...]] = [
        ("system", f"{machine.system}, {machine.machine}"),
        ("chip", f"{machine.chip or 'unknown'}, {machine.processors} processors"),
        ("Mac", machine.mac_model),
        ("GPU cores", machine.gpu_cores),
        ("memory", None if memory is None else size(memory)),
        ("memory for the GPU", _size(machine.working_set_bytes)),
        ("wired limit set by hand", _size(machine.wired_limit_bytes)),
        ("MLX computes with", f"{machine.backend or 'nothing'}: {machine.device}"),
        ("BLAS", machine.blas),
        ("load at the beginning", None if machine.load is None else f"{machine.load:.1f}"),
        *((name, version or "missing") for name, version in machine.versions.items()),
    ]
    if model is not None:
        rows += [
            ("model", model.name),
            ("architecture", model.architecture),
            ("parameters", f"{model.parameters:,}"),
            ("stored as", f"{model.stored_as}, {size(model.file_bytes)}"),
            ("weights in memory", model.weights),
            ("context", f"{model.context:,} tokens"),
            ("drafting", "yes" if model.drafting else "no: its caches cannot go back"),
        ]
    return _section(
        "Machine and model",
        "",
        _table("machine", ("", ""), [row for row in rows if row[1] is not None]),
    )


def _size(number: int | None) -> str | None:
    return None if number is None else size(number)


def _same_text(report: Report) -> str:
    made = [(name, report.figures(name, Replies)) for name in _REPLIES]
    rows: list[tuple[Cell, ...]] = []
    differing: list[tuple[Cell, ...]] = []
    for name, replies in made:
        if replies is None:
            continue
        rows.append(
            (
                name,
                replies.temperature,
                f"{replies.prompts} of {replies.shipped}",
                replies.max_tokens,
                f"{replies.identical} of {replies.prompts}",
                f"{replies.accepted:,} of {replies.drafted:,}",
            )
        )
        for difference in replies.differences[:_MOST_DIFFERENCES]:
            margin = "" if difference.margin is None else f"{difference.margin:.2g}"
            differing.append((name, difference.prompt, difference.token, margin))
    if not rows:
        return ""
    shown = _table(
        "replies",
        ("replies", "temperature", "prompts", "tokens a reply", "the same", "accepted drafts"),
        rows,
    )
    if differing:
        shown += "\n" + _table(
            "differences", ("replies", "prompt", "first token that differs", "margin"), differing
        )
    return _section(
        "Does drafting change the text?",
        "Each prompt is answered with and without drafting, and the tokens are compared. akunu "
        "drafts whatever it can here, whether that saves time or not, so that as many passes as "
        "possible have several rows. *Reproducible* replies are greedy and use `--reproducible`, "
        "which promises the same tokens. Where two replies differ, *margin* is the distance "
        "between the two highest logits at the first different token: near 0 it was a near-tie, "
        "far from 0 something is wrong.",
        shown,
    )


def _passes(report: Report) -> str:
    rows, costs = report.figures("rows", Rows), report.figures("costs", Costs)
    if rows is None and costs is None:
        return ""
    bits = {} if rows is None else {item.rows: item for item in rows.by_size}
    known = {} if costs is None else {found.rows: found for found in costs.sizes}
    cells: list[tuple[Cell, ...]] = []
    for count in sorted({*bits, *known}):
        cost, found = known.get(count), bits.get(count)
        pays = ""
        if cost is not None and cost.cost is not None and count > 1:
            low, high = _confidence(cost.pays_from_low), _confidence(cost.pays_from_high)
            pays = f"{_confidence(cost.pays_from)} ({low} to {high})"
        cells.append(
            (
                count,
                None if cost is None else f"{1e3 * cost.pass_s:.2f} ms",
                None if cost is None else _ratio(cost),
                pays,
                None if found is None else f"{found.different} of {found.compared}",
                None if found is None or not found.different else f"{found.largest:.1g}",
            )
        )
    shown = _table(
        "passes",
        (
            "rows of a pass", "time", "cost in plain steps", "needed probability",
            "rows with other bits", "largest difference",
        ),
        cells,
    )  # fmt: skip
    return _section(
        "What does a pass cost, and does it round alike?",
        "A draft of n tokens is checked in one pass over n + 1 rows. The *cost* of a pass is its "
        "time divided by that of a plain decoding step, which gives one token. "
        "A draft saves time if it brings more tokens than its pass costs: the *needed probability* "
        "is how likely each of its tokens must be right for that. *Rows with other bits*: the same "
        "short text is fed row by row and in passes of this size; counted are the rows whose "
        "logits differ in any bit, with the largest difference of a logit.",
        "\n".join([shown, *_about_passes(rows, costs)]),
    )


def _about_passes(rows: Rows | None, costs: Costs | None) -> Iterator[str]:
    if costs is not None:
        yield (
            f"After {costs.context_tokens} tokens a plain step takes "
            f"{1e3 * costs.plain_step_s:.2f} ms, which is {1 / costs.plain_step_s:.1f} tokens/s. "
            f"Times are medians of {costs.rounds} rounds."
        )
        if costs.copy_bytes_per_s is not None and costs.step_bytes:
            allowed = costs.copy_bytes_per_s / costs.step_bytes
            yield (
                f"\nSuch a step reads {size(round(costs.step_bytes))}. A large copy reads and "
                f"writes {costs.copy_bytes_per_s / 1e9:.1f} GB/s. If the speed of memory alone "
                f"limited decoding, {allowed:.1f} tokens/s would be possible."
            )
    if rows is not None and rows.reproducible_equal is not None:
        found = "are" if rows.reproducible_equal else "are **not**"
        yield f"\nRows of reproducible passes {found} bit-equal, whatever else is in the pass."


def _speed(report: Report) -> str:
    speed = report.figures("speed", Speed)
    if speed is None or not speed.arms:
        return ""
    rows: list[tuple[Cell, ...]] = []
    for arm in speed.arms:
        ratio = "1" if arm.arm == BASELINE else _ratio(arm)
        speed_text = None if arm.tokens_per_s is None else f"{arm.tokens_per_s:.1f}"
        same = None if arm.arm == BASELINE else f"{arm.identical} of {arm.pairs}"
        rows.append((arm.category, _ARMS[arm.arm], speed_text, ratio, arm.pairs, same))
    return _section(
        "Is it faster?",
        "mlx-lm's own loop, akunu without drafting, and akunu with its default drafting decode the "
        "same prompts in turns, so that heat or other work slows all three alike. Replies are "
        f"greedy and have up to {speed.max_tokens} tokens; prefill is not counted. The ratio is "
        "the median over the prompts. *Edits* repeat much of their prompt, *prose* little: "
        "drafting should speed up edits and not slow down prose. *The same* counts replies with "
        "the same tokens as mlx-lm's; where passes round differently, near-ties may differ.",
        _table(
            "speed",
            ("prompts", "decoded by", "tokens/s", "times mlx-lm's loop", "replies", "the same"),
            rows,
        ),
    )


def _waiting(report: Report) -> str:
    start, load = report.figures("start", Start), report.figures("load", Load)
    prefill = report.figures("prefill", Prefill)
    lines: list[str] = []
    if start is not None:
        listed = ", ".join(f"{seconds:.2f}" for seconds in start.seconds)
        lines.append(
            f"- **Start**: {listed} s from the start of a process to its first token, one process "
            "after another. The first may have read the model from disk."
        )
    if load is not None:
        lines.append(f"- **Loading** the model took {load.seconds:.2f} s in this process.")
    if prefill is not None:
        for length in prefill.lengths:
            speed = length.tokens / median(length.seconds)
            lines.append(
                f"- **Prefill**: a prompt of {length.tokens:,} tokens is read at {speed:.0f} "
                f"tokens/s; {median(length.seconds):.2f} s, the median of {len(length.seconds)}."
            )
    if not lines:
        return ""
    return _section("How long is the wait?", "", "\n".join(lines))


def _memory(report: Report) -> str:
    memory, prefill = report.figures("memory", Memory), report.figures("prefill", Prefill)
    if memory is None:
        return ""
    needed = memory.weights_bytes + memory.cache_bytes + memory.pass_bytes
    text = (
        f"Foreseen for {memory.tokens:,} tokens of context: {size(memory.weights_bytes)} for the "
        f"weights, {size(memory.cache_bytes)} for the cache, {size(memory.pass_bytes)} for the "
        f"largest pass, {size(needed)} together. A model may take {size(memory.limit_bytes)} on "
        "this machine. *Used* is the most that MLX held while it read a prompt of that length, "
        "weights included; it should not exceed what was foreseen."
    )
    if prefill is None:
        return _section("How much memory?", text, "")
    rows: list[tuple[Cell, ...]] = [
        (f"{length.tokens:,}", size(length.foreseen_bytes), size(length.peak_bytes))
        for length in prefill.lengths
    ]
    return _section(
        "How much memory?", text, _table("memory", ("tokens", "foreseen", "used"), rows)
    )


def _parts(report: Report) -> str:
    rows: list[tuple[Cell, ...]] = [
        (
            TITLES[name],
            part.state,
            f"{part.seconds:.1f} s" if part.seconds else "",
            f"{part.budget_s:.0f} s" if part.budget_s else "",
            part.note,
        )
        for name, part in report.parts.items()
    ]
    return _section(
        "Parts",
        "*Budget* is the share of the remaining time that a part had when it began. What one part "
        "does not use goes to later parts.",
        _table("parts", ("part", "state", "took", "budget", "note"), rows),
    )


def _section(title: str, text: str, shown: str) -> str:
    return "\n\n".join(part for part in (f"## {title}", text, shown.strip()) if part)


def _table(name: str, headings: Sequence[str], rows: Sequence[tuple[Cell, ...]]) -> str:
    columns = tuple(Column(f"c{number}", heading) for number, heading in enumerate(headings))
    return Table(name, "", columns, tuple(rows)).markdown()
