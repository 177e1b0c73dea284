"""The picture of a training over its steps: losses, scores if any, the learning rate. SVG and PNG.

A white ground and dark ink, so that it reads on a light and on a dark page. Not the log: that is
`checkpoint.LOG`.
"""

from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from lhkit.errors import MissingPackageError
from lhkit.files import write_whole
from lhkit.harness.report.picture import BLUE, LIGHT, RED
from lhkit.locales import DEFAULT_LOCALE, load_catalog
from lhkit.tuning.scores import Score

CURVES: Final = "curves"

_INK, _DIM, _LINE = LIGHT["ink"], LIGHT["dim"], LIGHT["line"]
_FONT: Final = "'Noto Sans KR', 'Noto Sans CJK KR', NanumGothic, sans-serif"
_WIDTH: Final = 620
_SMOOTHING: Final = 0.8
_PIXELS_PER_UNIT: Final = 2


def require_packages() -> None:
    """Refuse to start a training whose picture could not be drawn.

    Raises:
        MissingPackageError: altair or vl-convert is not installed.
    """
    missing = [name for name in ("altair", "vl_convert") if find_spec(name) is None]
    if missing:
        raise MissingPackageError(
            f"Tuning needs {' and '.join(missing)} for its curves: run `make venv`, or in the "
            "clone `pip install -e '.[tune]'`."
        )


def smoothed(losses: Sequence[float], weight: float = _SMOOTHING) -> list[float]:
    """Return the exponential moving average of a series, without the bias of its first values.

    Source: the bias correction of Adam (Kingma & Ba 2015, section 3).
    """
    averages: list[float] = []
    average = 0.0
    for count, loss in enumerate(losses, start=1):
        average = weight * average + (1 - weight) * loss
        averages.append(average / (1 - weight**count))
    return averages


def curves(
    log: Sequence[Mapping[str, Any]],
    *,
    scores: Sequence[Score] = (),
    locale: str = DEFAULT_LOCALE,
) -> dict[str, Any]:
    """Return the picture as a Vega-Lite specification with its data in it.

    Args:
        log: rows of the training log: step, loss, learning_rate and perhaps dev_loss.
        scores: what it made of scenarios on the way; they get a panel of their own.
        locale: the language of the labels.
    """
    import altair as alt

    text = load_catalog(locale).text
    step = alt.X("step:Q", title=text("tune.step"), axis=alt.Axis(tickMinStep=1))
    rate = (
        _chart([{"step": row["step"], "rate": row["learning_rate"]} for row in log])
        .mark_line(color=_DIM, strokeWidth=1.5)
        .encode(
            x=step,
            y=alt.Y(
                "rate:Q",
                title=text("tune.rate"),
                axis=alt.Axis(
                    labelExpr="datum.value ? format(datum.value, '~e') : '0'", tickCount=2
                ),
            ),
        )
        .properties(width=_WIDTH, height=70)
    )
    panels = (_losses(log, locale), *([_scores(scores, locale)] if scores else []), rate)
    drawn: dict[str, Any] = (
        alt.vconcat(*panels, spacing=16, background="white", padding=12)
        .resolve_scale(x="shared", color="independent")
        .configure(font=_FONT)
        .configure_view(stroke="transparent")
        .configure_axis(**_axis())
        .configure_legend(labelColor=_INK, orient="top", labelFontSize=12)
        .to_dict()
    )
    return drawn


def _losses(log: Sequence[Mapping[str, Any]], locale: str) -> Any:
    import altair as alt

    text = load_catalog(locale).text
    raw, smooth, dev = text("tune.raw"), text("tune.smooth"), text("tune.dev")
    colours = alt.Scale(domain=[raw, smooth, dev], range=[f"{BLUE}55", BLUE, RED])
    base = _chart(_loss_rows(log, raw, smooth, dev)).encode(
        x=alt.X("step:Q", title=None, axis=alt.Axis(tickMinStep=1)),
        y=alt.Y("loss:Q", title=text("tune.loss"), scale=alt.Scale(zero=True)),
        color=alt.Color("series:N", scale=colours, title=None),
    )
    lines = [
        base.transform_filter(alt.datum.series == name).mark_line(strokeWidth=width)
        for name, width in ((raw, 1), (smooth, 2.2), (dev, 1.2))
    ]
    points = base.transform_filter(alt.datum.series == dev).mark_point(filled=True, size=45)
    return alt.layer(*lines, points).properties(width=_WIDTH, height=260)


def _scores(scores: Sequence[Score], locale: str) -> Any:
    import altair as alt

    text = load_catalog(locale).text
    calls, passed = text("tune.right_calls"), text("tune.passed")
    rows = [
        {"step": each.step, "series": series, "share": 100 * part / whole}
        for each in scores
        for series, part, whole in (
            (calls, each.right_calls, each.counted_calls),
            (passed, each.passed, each.valid),
        )
        if whole
    ]
    served = " · ".join(dict.fromkeys(each.served_as for each in scores))
    title = alt.Title(
        text("tune.scored_as", served=served), anchor="start", color=_DIM, fontSize=11
    )
    return (
        _chart(rows)
        .mark_line(point=alt.OverlayMarkDef(filled=True, size=45), strokeWidth=1.8)
        .encode(
            x=alt.X("step:Q", title=None, axis=alt.Axis(tickMinStep=1)),
            y=alt.Y("share:Q", title="%", scale=alt.Scale(domain=[0, 100])),
            color=alt.Color(
                "series:N", scale=alt.Scale(domain=[calls, passed], range=[BLUE, RED]), title=None
            ),
        )
        .properties(width=_WIDTH, height=130, title=title)
    )


def _loss_rows(
    log: Sequence[Mapping[str, Any]], raw: str, smooth: str, dev: str
) -> list[dict[str, Any]]:
    average = smoothed([row["loss"] for row in log])
    return [
        *({"step": row["step"], "series": raw, "loss": row["loss"]} for row in log),
        *(
            {"step": row["step"], "series": smooth, "loss": loss}
            for row, loss in zip(log, average, strict=True)
        ),
        *(
            {"step": row["step"], "series": dev, "loss": row["dev_loss"]}
            for row in log
            if row.get("dev_loss") is not None
        ),
    ]


def save_curves(
    folder: Path,
    log: Sequence[Mapping[str, Any]],
    *,
    scores: Sequence[Score] = (),
    locale: str = DEFAULT_LOCALE,
) -> None:
    """Write `curves.svg` and `curves.png` into `folder`, each replaced in one step.

    Raises:
        OSError: the disk does not take them.
    """
    import vl_convert  # noqa: PLC0415 - heavy, and only for pictures

    spec = curves(log, scores=scores, locale=locale)
    svg = vl_convert.vegalite_to_svg(spec, allowed_base_urls=[]).encode()
    png = vl_convert.vegalite_to_png(spec, scale=_PIXELS_PER_UNIT, allowed_base_urls=[])
    for suffix, content in (("svg", svg), ("png", png)):
        write_whole(folder / f"{CURVES}.{suffix}", content)


def _axis() -> dict[str, Any]:
    return {
        "labelColor": _INK,
        "titleColor": _DIM,
        "domainColor": _LINE,
        "tickColor": _LINE,
        "gridColor": _LINE,
        "gridOpacity": 0.6,
        "labelFontSize": 12,
        "titleFontSize": 12,
        "titleFontWeight": "normal",
    }


def _chart(rows: list[dict[str, Any]]) -> Any:
    import altair as alt

    return alt.Chart(alt.Data(values=rows))  # type: ignore[no-untyped-call]  # altair's own
