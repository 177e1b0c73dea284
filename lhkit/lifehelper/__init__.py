"""The reference toolset: a Korean-speaking habit assistant over a SQLite database.

The core does not import it, so that it can be replaced by another toolset.
"""
