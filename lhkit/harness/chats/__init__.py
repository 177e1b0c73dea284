"""Kept chats, their reviews, and the corrections that become scenarios.

Conversations of real users and their labels. `authoring` makes scenarios of them, `records` writes
files.
"""
