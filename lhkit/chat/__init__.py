"""Many turns: the transcript, the pure next step, and the driver around them.

Knows no tool, and not how a model is reached.
"""
