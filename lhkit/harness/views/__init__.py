"""Pieces that people read: tables, and HTML of runs and samples.

One table model, which terminal, notebook, page and Markdown render. Whole documents are in
`report`.
"""
