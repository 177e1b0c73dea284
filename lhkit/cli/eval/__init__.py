"""`lhkit eval`, and what `lhkit matrix` shares with it."""
