"""A run on paper: a table in the terminal, an HTML page, Markdown for a pull request, JUnit XML.

Lays out the tables of `harness.tables` and the parts of `harness.transcript`; counts nothing.
"""
