"""A run on paper: one HTML file for people, Markdown for a pull request, JUnit XML for CI.

Reads records and numbers; plays and judges nothing. What a transcript looks like is `fragments`'.
"""
