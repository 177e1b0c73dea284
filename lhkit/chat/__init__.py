"""Many turns: the transcript, the pure next step, and the driver around them."""
