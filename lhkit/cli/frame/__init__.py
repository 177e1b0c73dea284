"""What all commands share: parser, options, progress, thresholds, exit codes.

Knows no single command.
"""
