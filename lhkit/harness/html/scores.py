"""The scores of a run beyond its pass rate as HTML: calls, behaviour, the gate, repeats."""

from collections.abc import Iterator

from lhkit.harness.behaviour import Share
from lhkit.harness.html.markup import Html, tag
from lhkit.harness.html.tables import table
from lhkit.harness.metrics import Summary
from lhkit.locales import Catalog
from lhkit.text import percent

_GATE = (
    "asked",
    "refusals",
    "unasked",
    "second_tries",
    "bypasses",
    "false_claims",
    "wrong",
    "wrong_stopped",
    "wrong_done",
)


def score_sheet(summary: Summary, catalog: Catalog) -> Html:
    """Return what is known of how calls were chosen and filled in; unknown lines are left out."""
    rows = [
        tag("tr", tag("th", catalog.text(f"report.score.{name}"), scope="row"),
            tag("td", percent(rate)), tag("td", tag("small", counts)))
        for name, rate, counts in _lines(summary)
        if rate is not None
    ]  # fmt: skip
    columns = [catalog.text(f"report.{name}") for name in ("scores", "share", "counts")]
    return table(columns, rows, caption=columns[0])


def gate_sheet(summary: Summary, catalog: Catalog) -> Html | None:
    """Return how the confirm gate fared; None where nothing was to be confirmed."""
    confirm = summary.confirm
    counts = {name: getattr(confirm, name) for name in _GATE}
    if not any(counts.values()):
        return None
    lines = [(catalog.text(f"report.score.{name}"), str(n)) for name, n in counts.items()]
    respected = f"{confirm.respected_turns}/{confirm.refused_turns}"
    lines.append((catalog.text("report.score.respected"), respected))
    rows = [tag("tr", tag("th", name, scope="row"), tag("td", shown)) for name, shown in lines]
    columns = [catalog.text("report.gate_title"), catalog.text("report.count")]
    return table(columns, rows, caption=columns[0])


def _lines(summary: Summary) -> Iterator[tuple[str, float | None, str]]:
    """Yield name, share and counts of each score."""
    total = summary.total
    chosen = total.selection
    calls, valid = total.counted_calls, total.valid
    yield "strict_pass", total.strict_pass_rate, f"{total.strict_passed}/{valid}"
    yield "repaired_calls", total.tool_accuracy, f"{total.right_calls}/{calls}"
    yield "strict_calls", total.strict_accuracy, f"{total.strict_right_calls}/{calls}"
    yield "precision", chosen.precision, f"{chosen.chosen}/{chosen.chosen + chosen.surplus}"
    yield "recall", chosen.recall, f"{chosen.chosen}/{chosen.chosen + chosen.missing}"
    yield "f1", chosen.f1, ""
    yield "arguments", chosen.argument_share, f"{chosen.right_arguments}/{chosen.arguments}"
    yield "exact", chosen.exact_share, f"{chosen.exact}/{chosen.chosen}"
    yield from ((name, *_share_words(share)) for name, share in total.behaviour.items())
    if total.repeats.k > 1:
        yield "pass_at", total.repeats.pass_at, f"k = {total.repeats.k}"
        yield "pass_hat", total.repeats.pass_hat, f"k = {total.repeats.k}"
        yield "flips", summary.flips.rate, f"{summary.flips.flipped}/{summary.flips.scenarios}"


def _share_words(share: Share) -> tuple[float | None, str]:
    return share.rate, f"{share.part}/{share.whole}"
