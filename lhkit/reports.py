"""The metrics of a run (`Run.summary`) and the charts of runs and comparisons."""

from lhkit.harness.figures.metrics import ConfirmScore, Selection, Summary, Tally
from lhkit.harness.report import charts

__all__ = ["ConfirmScore", "Selection", "Summary", "Tally", "charts"]
