"""The scenario language: user messages, expected calls and replies.

Files are read, checked and filtered here; every issue names its file, line and field. Runs nothing;
it compares single values, whole calls are compared in `scoring`.
"""
