"""Expected and actual calls of a turn as an HTML table, one row per argument."""

from collections.abc import Iterator

from lhkit.harness.html.markup import Html, chip, join, json_text, label, tag
from lhkit.harness.record import ArgumentScore, CallScore, TurnScore
from lhkit.locales import Catalog

_COLUMNS = ("call", "argument", "expected", "actual", "why")


def score_table(score: TurnScore | None, catalog: Catalog) -> Html | None:
    """Return expected and actual calls side by side; None where none was due and none was made."""
    if score is None or not score.calls:
        return None
    head = (tag("th", catalog.text(f"report.{name}"), scope="col") for name in _COLUMNS)
    rows = (row for call in score.calls for row in _rows(call, catalog))
    table = tag("table", tag("thead", tag("tr", *head)), tag("tbody", *rows), class_="lhr-diff")
    return tag(
        "div",
        label(catalog.text("report.comparison")),
        tag(
            "div",
            table,
            class_="lhr-scroll",
            tabindex="0",
            role="region",
            aria_label=catalog.text("report.comparison"),
        ),
    )


def _rows(call: CallScore, catalog: Catalog) -> Iterator[Html]:
    kind = "lhr-right" if call.ok else "lhr-wrong"
    height = str(len(call.arguments) + 1)
    name = tag("th", *_name(call, catalog), scope="rowgroup", rowspan=height)
    state = catalog.text(f"report.{_call_state(call)}")
    yield tag(
        "tr", name, tag("td", state, colspan="3"), tag("td", _why(ok=call.ok, reason=call.reason)),
        class_=f"{kind} lhr-head",
    )  # fmt: skip
    for argument in call.arguments:
        yield _argument(argument)


def _name(call: CallScore, catalog: Catalog) -> Iterator[Html]:
    yield tag("code", call.tool or call.called or "?")
    if call.optional:
        yield join([" ", chip(catalog.text("report.optional"))])


def _call_state(call: CallScore) -> str:
    if call.actual is None:
        return "not_called"
    return "surplus" if call.expected is None else "called"


def _argument(argument: ArgumentScore) -> Html:
    return tag(
        "tr",
        tag("td", tag("code", argument.name)),
        tag("td", _value(argument.expected)),
        tag("td", _value(argument.actual)),
        tag("td", _why(ok=argument.ok, reason=argument.reason)),
        class_="lhr-right" if argument.ok else "lhr-wrong",
    )


def _value(value: object) -> Html:
    """Return a value as JSON, so that `"1"` and `1` look different; a dash where there is none."""
    return tag("code", "–" if value is None else json_text(value))


def _why(*, ok: bool, reason: str) -> str:
    mark = "✓" if ok else "✗"
    return f"{mark} {reason}".rstrip()
