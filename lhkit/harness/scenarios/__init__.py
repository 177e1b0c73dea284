"""The scenario language: what is said, which calls and replies are expected.

Files are read, checked and filtered here; every issue names its file, line and field. Runs nothing;
it compares single values, whole calls are compared in `scoring`.
"""
