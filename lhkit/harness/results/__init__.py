"""Runs that were played: read back, as data frames, compared, and side by side in a matrix."""
