"""Resolve the days, date ranges and times of day that a message mentions, by rules."""
