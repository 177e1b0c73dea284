"""What each command of `lhkit` does; options are parsed in `lhkit.cli`."""
