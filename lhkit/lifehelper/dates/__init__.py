"""Days and spans that people name in words, worked out by rules instead of by a small model."""
