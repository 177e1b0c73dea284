"""Scorers of a conversation: calls, replies, state, violations, success claims, verdict.

Pure: the same evidence gives the same verdict, so that stored records can be scored again.
"""
