"""What each command of `lhkit` does; options are parsed in `lhkit.cli`.

Nothing that a notebook would need too.
"""
