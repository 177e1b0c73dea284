"""Asking a person before data changes: the gate, its simple kinds, and the summary it shows.

Runs nothing, and draws nothing but lines of a terminal: the card is the notebook's.
"""
