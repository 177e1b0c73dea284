"""The reference domain: a Korean-speaking habit assistant over a real database.

The core does not import it: replace it by tools of your own.
"""
