"""Scorers of calls, replies, state, violations and success claims; the verdict.

Pure: the same evidence gives the same verdict, so that stored records can be scored again.
"""
