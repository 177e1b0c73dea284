"""Days, spans and times of day that people name in words, worked out by rules, not by a model."""
