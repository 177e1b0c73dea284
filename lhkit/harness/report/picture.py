"""Altair charts as pictures inside a page: SVG in a data address, once for light, once for dark.

An `img` never runs what is in it and keeps its words apart from the page's; `picture` chooses by
the reader's theme. Nothing is fetched.
"""

import base64
from typing import Any, Final

from lhkit.errors import MissingPackageError
from lhkit.harness.html.markup import Html, tag

BLUE: Final = "#3b7dd8"
RED: Final = "#d1495b"
YELLOW: Final = "#d9a02b"
_FONT: Final = "system-ui, 'Noto Sans KR', 'Noto Sans CJK KR', NanumGothic, sans-serif"
LIGHT: Final = {"ink": "#1c2128", "dim": "#57606a", "line": "#d5dae0"}
_DARK: Final = {"ink": "#e4e8ee", "dim": "#9aa5b1", "line": "#363d47"}


def picture(chart: Any, description: str) -> Html:
    """Return a chart as an element of a page.

    Args:
        chart: an altair chart.
        description: what it shows, for those who cannot see it.

    Raises:
        MissingPackageError: vl-convert is not installed.
    """
    spec = chart.to_dict()
    dark = tag("source", media="(prefers-color-scheme: dark)", srcset=_address(spec, _DARK))
    light = tag("img", src=_address(spec, LIGHT), alt=description)
    inner = f"{dark}{light}".replace("</source>", "").replace("</img>", "")
    return tag("figure", tag("picture", Html(inner)))


def _address(spec: dict[str, Any], colours: dict[str, str]) -> Html:
    svg = svg_of({**spec, "config": _config(colours)})
    return Html(f"data:image/svg+xml;base64,{base64.b64encode(svg.encode()).decode()}")


def svg_of(spec: dict[str, Any]) -> str:
    """Return a Vega-Lite specification drawn as SVG.

    Raises:
        MissingPackageError: vl-convert is not installed.
    """
    try:
        import vl_convert
    except ImportError as error:
        raise MissingPackageError(
            "vl-convert-python is not installed: in the clone, `pip install -e '.[report]'`"
        ) from error
    svg: str = vl_convert.vegalite_to_svg(spec, allowed_base_urls=[])
    return svg


def _config(colours: dict[str, str]) -> dict[str, Any]:
    ink, dim, line = colours["ink"], colours["dim"], colours["line"]
    axis = {
        "labelColor": ink,
        "titleColor": dim,
        "domainColor": line,
        "tickColor": line,
        "gridColor": line,
        "gridOpacity": 0.6,
        "labelFontSize": 12,
        "titleFontSize": 12,
        "titleFontWeight": "normal",
        "labelLimit": 220,
    }
    return {
        "background": "transparent",
        "font": _FONT,
        "view": {"stroke": "transparent"},
        "axis": axis,
        "legend": {"labelColor": ink, "titleColor": dim, "orient": "top", "labelFontSize": 12},
        "text": {"color": ink, "fontSize": 12},
    }
