"""Records, summaries and comparisons to HTML: what a notebook shows and what a report is made of.

Pure: values in, escaped markup out, no file and no widget. Every text of a model, a user or a tool
passes through `markup`, which escapes it; pages, plots and scripts are `report`'s business.
"""

from lhkit.harness.fragments.markup import Html
from lhkit.harness.fragments.notebook import SampleView, comparison_html, run_html
from lhkit.harness.fragments.trace import trace_html

__all__ = ["Html", "SampleView", "comparison_html", "run_html", "trace_html"]
