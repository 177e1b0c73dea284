"""The report as Markdown and as JUnit XML."""

import json
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape
from typing import Any, Final
from xml.etree import ElementTree as ET

from lhkit.events import GateOutcome
from lhkit.harness.compare import compare
from lhkit.harness.html import (
    card_words,
    claims_words,
    criterion_words,
    failures_first,
    interval_words,
    names_of_new,
    numbers,
)
from lhkit.harness.metrics import Summary, Tally
from lhkit.harness.pairs import Comparison
from lhkit.harness.record import CallRecord, SampleRecord, TurnRecord, Verdict
from lhkit.harness.report.terminal import claim_words, spent_words
from lhkit.harness.results import Run
from lhkit.locales import Catalog
from lhkit.responses import ModelIdentity
from lhkit.text import one_line, percent, printable, seconds

# Where a run comes from, in lines: model, versions, commit, machine, and how to play it again.


def facts(run: Run, summary: Summary, catalog: Catalog) -> tuple[tuple[str, str], ...]:
    """Return name and value of each line; what is not known is left out."""
    manifest = run.manifest
    lines = (
        *(("model", _identity(each)) for each in summary.models),
        *(("dialect", each.dialect) for each in summary.models),
        *(("constraint", each.constraint) for each in summary.models),
        ("sampling", " · ".join(_pairs(each) for each in manifest.get("sampling", ()))),
        ("scenarios", _scenarios(run)),
        ("tokens", _tokens(summary)),
        ("time", spent_words(summary.spent, catalog) if summary.spent else ""),
        ("started", ", ".join(_starts(manifest))),
        ("versions", _pairs(manifest.get("versions", {}))),
        ("commit", str(manifest.get("git_commit") or "")),
        ("hardware", _pairs(manifest.get("hardware", {}))),
        ("command", command(run, summary)),
    )
    return tuple((catalog.text(f"report.facts.{name}"), value) for name, value in lines if value)


_MODEL = re.compile(r"[\w./@][\w./:@+-]*")
_ADDRESS = re.compile(r"https?://[\w.:\[\]-]+(?:/[\w./-]*)?")


def command(run: Run, summary: Summary) -> str:
    """Return the command that plays such a run again; empty where the model is not known.

    It is put together from what is known of the model: the manifest's own `command` may be somebody
    else's, and whoever reads a report copies it. Which toolset and scenario files were played, and
    a limit, are not in it.
    """
    if not summary.models:
        return ""
    model = summary.models[0]
    addresses = model.base_url.split()
    words = (model.model, model.dialect or "-", model.constraint)
    is_plain = _MODEL.fullmatch(words[0]) and all(
        re.fullmatch(r"[\w-]+", each) for each in words[1:]
    )
    if not is_plain or not all(map(_ADDRESS.fullmatch, addresses)):
        return ""
    options = ["--model", model.model]
    options += [word for each in addresses for word in ("--base-url", each)]
    options += ["--dialect", model.dialect] if model.dialect else []
    options += ["--constrain", model.constraint] if model.constraint != "off" else []
    repeats = run.manifest.get("repeats", 1)
    options += ["--repeats", str(repeats)] if repeats != 1 else []
    return shlex.join(["lhkit", "eval", *options])


def _identity(identity: ModelIdentity) -> str:
    parts = (identity.title, identity.server, identity.dtype, identity.base_url)
    return " · ".join(part for part in parts if part)


def _pairs(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in values.items() if value is not None)


def _scenarios(run: Run) -> str:
    ids = {record.sample_id.scenario for record in run.records}
    return f"{len(ids):,} × {run.manifest.get('repeats', 1)}"


def _tokens(summary: Summary) -> str:
    tokens = summary.tokens
    if not tokens.prompt and not tokens.completion:
        return ""
    share = "" if tokens.cached_share is None else f" (cached {percent(tokens.cached_share)})"
    return f"prompt {tokens.prompt:,}{share}, completion {tokens.completion:,}"


def _starts(manifest: Mapping[str, Any]) -> Iterator[str]:
    for invocation in manifest.get("invocations", ()):
        if invocation.get("started_at"):
            yield str(invocation["started_at"])


# Plain text for places that show no HTML: a pull request's fold, a CI log, a plot's labels.


_REFUSED = re.compile("[^\t\n\r -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""What XML 1.0 has no place for, not even escaped (https://www.w3.org/TR/xml/#charsets)."""


def transcript(record: SampleRecord, catalog: Catalog, *, max_chars: int) -> str:
    """Return what was said, written, called and answered, in at most `max_chars` characters."""
    lines = [
        line
        for number, turn in enumerate(record.evidence.turns)
        for line in _turn(number, turn, catalog)
    ]
    told = printable("\n".join(lines))
    return told if len(told) <= max_chars else f"{told[: max_chars - 2]} …"


def xml_text(words: str) -> str:
    """Return text that is safe for a terminal and that XML 1.0 can carry."""
    return _REFUSED.sub("\ufffd", printable(words))


def _turn(number: int, turn: TurnRecord, catalog: Catalog) -> Iterator[str]:
    text = catalog.text
    yield f"## {text('report.turn', number=number + 1)} · {turn.ended} · {seconds(turn.duration_s)}"
    yield f"{text('report.user')}: {turn.user}"
    for index, request in enumerate(turn.model_calls):
        yield f"{text('report.message', number=index + 1)}: {request.response.raw_text}"
        for call in turn.calls:
            if call.model_call == index:
                yield _call(call)
                if call.answer:
                    yield f"  {text('report.card')}: {call.summary}"
    yield f"{text('report.reply')}: {turn.reply or '–'}"
    if turn.new_tools:
        yield f"{text('report.came')}: {names_of_new(turn)}"
    if turn.error or turn.detail:
        yield f"{text('report.fault')}: {turn.cause or ''} {turn.detail or turn.error}"


def _call(call: CallRecord) -> str:
    args = call.raw_args if call.args is None else call.args
    answer = f": {call.answer}" if call.answer else ""
    asked = "" if call.gate is GateOutcome.NOT_NEEDED else f" [{call.gate}{answer}]"
    return f"→ {call.tool}({_line(args)}){asked} → {_line(call.result)}"


def _line(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=repr)


# A run in Markdown, for a pull request: a short table, then failures that unfold.
#
# Every text that we did not write stands in a code span, a code block or escaped HTML: there it
# can neither format, nor link, nor mention anybody.


MAX_CHARS: Final = 65_000
"""What a comment on a pull request takes, with a little to spare."""

_MARKS = {Verdict.PASS: "✅", Verdict.FAIL: "❌", Verdict.INVALID: "⚠️"}
_LINE_CHARS = 200
_MARKDOWN_TRANSCRIPT_CHARS = 3_000
_REASONS = 8
_FLIPS = 20
_FACTS = ("model", "dialect", "constraint", "commit", "command")


def markdown(
    run: Run,
    catalog: Catalog,
    *,
    name: str,
    baseline: Run | None = None,
    max_chars: int = MAX_CHARS,
) -> str:
    """Return the run as Markdown of at most `max_chars` characters.

    Args:
        run: what to report.
        catalog: the texts.
        name: what the run is called.
        baseline: an earlier run to set it against.
        max_chars: where to cut; the last line then says how much is left out.
    """
    summary = run.summary()
    compared = () if baseline is None else _compared(compare(baseline, run), catalog)
    head = "\n".join(
        [
            *_head(name, run.toolset, summary, catalog),
            *compared,
            *_summary_lines(run, summary, catalog),
        ]
    )
    failed = [
        each for each in failures_first(run.records) if each.judgement.verdict is not Verdict.PASS
    ]
    if not failed:
        key = "report.no_failures" if run.records else "report.no_samples"
        return f"{head}\n{catalog.text(key)}\n"[:max_chars]
    return _fitted(f"{head}\n### {catalog.text('report.failures')}\n\n", failed, catalog, max_chars)


def _fitted(head: str, failed: list[SampleRecord], catalog: Catalog, max_chars: int) -> str:
    """Return the head and as many failures as fit, and how many did not."""
    parts, used = [head], len(head)
    for number, record in enumerate(failed):
        part = _failure(record, catalog)
        cut = f"\n**{catalog.text('report.cut', count=len(failed) - number)}**\n"
        if used + len(part) + len(cut) > max_chars:
            return "".join(parts)[: max_chars - len(cut)] + cut
        parts.append(part)
        used += len(part)
    return "".join(parts)


def _head(name: str, toolset: str, summary: Summary, catalog: Catalog) -> Iterator[str]:
    total, text = summary.total, catalog.text
    bad = total.failed or total.invalid or total.escaped
    yield f"## {_MARKS[Verdict.FAIL if bad else Verdict.PASS]} {code(name)}"
    yield ""
    columns = ("table.ac", "table.pass_rate", "report.interval", "table.tool_accuracy",
               "table.attempted", "table.escaped", "table.turn_p50")  # fmt: skip
    yield row_of(text(key) for key in columns)
    yield row_of(["---", *["---:"] * (len(columns) - 1)])
    words = criterion_words((each.name for each in summary.by_ac), toolset, catalog)
    for tally in summary.by_ac:
        yield row_of(_cells(tally, f"{cell(tally.name)} {words[tally.name]}"))
    for tally in summary.by_difficulty:
        yield row_of(_cells(tally, text(f"table.{tally.name}")))
    yield row_of(_cells(total, f"**{text('table.total')}**"))
    yield ""
    if summary.confirm.asked:
        yield f"- {card_words(summary, catalog)}"
        yield ""


def _cells(tally: Tally, name: str) -> tuple[str, ...]:
    return (
        name.strip(),
        f"{percent(tally.pass_rate)} ({tally.passed}/{tally.valid})",
        interval_words(tally.interval) if tally.valid else "–",
        percent(tally.tool_accuracy),
        str(sum(tally.attempted.values())),
        str(sum(tally.escaped.values())),
        seconds(tally.turn.p50_s),
    )


def _summary_lines(run: Run, summary: Summary, catalog: Catalog) -> Iterator[str]:
    total, text = summary.total, catalog.text
    yield text("table.invalid_line", count=total.invalid)
    for severity, codes in (("escaped", total.escaped), ("attempted", total.attempted)):
        if codes:
            counts = ", ".join(f"{code(rule)} {count}" for rule, count in codes.items())
            yield f"- {text(f'table.{severity}_line', codes=counts)}"
    if summary.false_claims:
        yield f"- {claims_words(summary, catalog)}"
        for sample, claim in summary.false_claims[:_FLIPS]:
            yield f"  - {code(claim_words(sample, claim, catalog).strip())}"
    wanted = {text(f"report.facts.{each}") for each in _FACTS}
    for label, value in facts(run, summary, catalog):
        if label in wanted:
            yield f"- {label}: {code(value)}"
    yield ""


def _compared(comparison: Comparison, catalog: Catalog) -> Iterator[str]:
    """Yield the numbers against a baseline, and which samples flipped."""
    yield f"### {catalog.text('report.flips')}"
    yield ""
    names = (comparison.name_a, comparison.name_b)
    yield row_of(["", *map(cell, names), catalog.text("compare.difference")])
    yield row_of(["---", "---:", "---:", "---:"])
    for row in numbers(comparison, catalog):
        yield row_of(row)
    yield ""
    for key, pairs in (("lost", comparison.lost), ("gained", comparison.gained)):
        if pairs:
            listed = ", ".join(code(str(pair.sample_id)) for pair in pairs[:_FLIPS])
            more = " …" if len(pairs) > _FLIPS else ""
            yield f"- {catalog.text(f'compare.{key}', count=len(pairs))} {listed}{more}"
    yield ""


def _failure(record: SampleRecord, catalog: Catalog) -> str:
    shown = [
        one_line(reason, max_chars=_LINE_CHARS) for reason in record.judgement.reasons[:_REASONS]
    ]
    named = (str(record.sample_id), record.ac, *shown[:1])
    line = " · ".join(f"<code>{escape(one_line(w, max_chars=_LINE_CHARS))}</code>" for w in named)
    told = transcript(record, catalog, max_chars=_MARKDOWN_TRANSCRIPT_CHARS)
    fence = _fence(told, at_least=3)
    return "\n".join(
        [
            f"<details><summary>{_MARKS[record.judgement.verdict]} {line}</summary>",
            "",
            *(f"- {code(reason)}" for reason in shown),
            *(
                f"- **{catalog.text(f'table.{each.severity}')}** {code(each.code)} "
                f"{code(each.detail)}".rstrip()
                for each in record.judgement.violations
            ),
            "",
            f"{fence}text",
            told,
            fence,
            "",
            "</details>",
            "",
        ]
    )


def code(words: str) -> str:
    """Return text as a code span that nothing in it can end; empty text gives nothing."""
    line = one_line(words, max_chars=_LINE_CHARS)
    if not line:
        return ""
    fence = _fence(line, at_least=1)
    space = " " if line.startswith("`") or line.endswith("`") else ""
    return f"{fence}{space}{line}{space}{fence}"


def cell(words: str) -> str:
    """Return a code span for a table, where a bar would end the cell."""
    return code(words).replace("|", "\\|")


def _fence(words: str, *, at_least: int) -> str:
    longest = max((len(run) for run in re.findall(r"`+", words)), default=0)
    return "`" * max(longest + 1, at_least)


def row_of(cells: Iterable[str]) -> str:
    """Return a row of a table in Markdown; what we did not write is a `cell` of it."""
    return f"| {' | '.join(cells)} |"


# A run as JUnit XML, so that a CI shows failed scenarios like failed tests.
#
# One suite per acceptance criterion, one case per sample. A fail is a `failure`; an invalid sample
# is an `error`, because the world failed. The shape is the one that Jenkins, GitLab and GitHub's
# reporters agree on.


_JUNIT_TRANSCRIPT_CHARS: Final = 20_000


def junit_xml(run: Run, catalog: Catalog, *, name: str) -> str:
    """Return the run as an XML document.

    Args:
        run: what to report.
        catalog: the texts.
        name: what the run is called.
    """
    summary = run.summary()
    root = _counted("testsuites", name, run.records)
    for tally in summary.by_ac:
        records = [record for record in run.records if record.ac == tally.name]
        suite = _counted("testsuite", tally.name, records)
        suite.set("skipped", "0")
        started = min((r.started_at for r in records if r.started_at), default=None)
        if started:
            suite.set("timestamp", xml_text(started))
        properties = ET.SubElement(suite, "properties")
        for label, value in facts(run, summary, catalog):
            ET.SubElement(properties, "property", name=xml_text(label), value=xml_text(value))
        suite.extend(_case(record, catalog, name) for record in records)
        root.append(suite)
    ET.indent(root)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{ET.tostring(root, encoding="unicode")}\n'


def _counted(element: str, name: str, records: Sequence[SampleRecord]) -> ET.Element:
    verdicts = [record.judgement.verdict for record in records]
    return ET.Element(
        element,
        name=xml_text(name),
        tests=str(len(records)),
        failures=str(verdicts.count(Verdict.FAIL)),
        errors=str(verdicts.count(Verdict.INVALID)),
        time=f"{sum(record.wall_s for record in records):.3f}",
    )


def _case(record: SampleRecord, catalog: Catalog, run_name: str) -> ET.Element:
    case = ET.Element(
        "testcase",
        classname=xml_text(f"{run_name}.{record.ac}"),
        name=xml_text(str(record.sample_id)),
        time=f"{record.wall_s:.3f}",
    )
    if record.judgement.verdict is not Verdict.PASS:
        kind = "failure" if record.judgement.verdict is Verdict.FAIL else "error"
        first = (
            record.judgement.reasons[0]
            if record.judgement.reasons
            else str(record.judgement.verdict)
        )
        found = ET.SubElement(
            case, kind, message=xml_text(first), type=str(record.judgement.verdict)
        )
        found.text = xml_text("\n".join(_failure_lines(record)))
    output = ET.SubElement(case, "system-out")
    output.text = xml_text(transcript(record, catalog, max_chars=_JUNIT_TRANSCRIPT_CHARS))
    return case


def _failure_lines(record: SampleRecord) -> list[str]:
    violations = (f"{v.severity}: {v.code}: {v.detail}" for v in record.judgement.violations)
    return [*record.judgement.reasons, *violations]
