"""A head start: many toolsets that nobody has, to learn calling tools from."""
