"""The command line: a module for each command, listed in `parser`; shared options in `options`."""
