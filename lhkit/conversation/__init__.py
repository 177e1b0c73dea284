"""Conversations as data: messages, tool specs and results, responses, events.

Values only, which can be compared, stored and sent. Whatever makes or runs them lives above.
"""
