"""Whole documents of a run: terminal, HTML page, charts, Markdown, JUnit.

They put together the pieces of `views`. Nothing is computed here.
"""
