"""What each command of `lhkit` is asked for (`options`) and what it does.

Nothing that a notebook would need too.
"""
