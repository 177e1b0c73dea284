"""A run on paper: one HTML file for people, Markdown for a pull request, JUnit XML for CI.

Reads records and numbers; runs and scores nothing. Samples as HTML are in `harness.html`.
"""
