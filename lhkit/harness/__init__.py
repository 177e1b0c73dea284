"""Replaying scripted conversations and scoring them: scenarios in, records and verdicts out."""
