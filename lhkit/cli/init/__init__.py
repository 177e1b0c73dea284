"""`lhkit init`, and the project that it writes."""
