"""From what happened in a conversation to its verdict: calls, replies, state, violations, claims.

Pure: the same evidence gives the same verdict, and old records can be judged again.
"""
