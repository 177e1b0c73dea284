"""Asking a person before data changes: the gate, its simple kinds, and the summary it shows."""
