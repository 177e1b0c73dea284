"""Kept chats, their reviews, and the corrections that become scenarios.

What people did and said of it. Scenarios are made by `authoring`, files are written by `records`.
"""
