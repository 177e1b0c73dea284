"""Replaying scripted conversations and scoring them: scenarios in, records and scores out.

Knows no option, no exit code and no server: a model comes as a value.
"""
