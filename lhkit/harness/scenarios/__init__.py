"""Scripted conversations: their files, their shape, and the suites that name them."""
