"""What each command of `lhkit` is asked for (`options`, `tune_options`) and what it does.

Nothing that a notebook would need too.
"""
