"""The command line: one file a command, and `parser` with their names and help.

`options` holds what each command is asked for. Nothing that a notebook would need too.
"""
