"""Kept chats, their reviews, and the corrections that become scenarios.

Conversations of people, and their judgements. Scenarios are made by `authoring`, run folders are
written by `records`.
"""
