"""`lhkit demo`: scripted conversations with real tools, a real gate and real scores."""
