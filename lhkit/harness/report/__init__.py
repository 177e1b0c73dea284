"""Reports of a run: terminal tables, an HTML page, Markdown for a pull request, JUnit XML.

They render the tables of `harness.tables` and the parts of `harness.transcript`.
"""
