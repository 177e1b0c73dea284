"""Records, summaries and comparisons as HTML, for notebooks and reports.

Pure: values in, escaped markup out. Pages, charts and scripts are in `harness.report`.
"""
