"""The reference toolset: a Korean-speaking habit assistant over a SQLite database.

It is loaded by its name, as any other toolset (`lhkit.toolset.references`). Four places import it:
`lhkit` (`find_dates` and `find_times`), `lhkit.app` (shipped scenarios, and a check that scenarios
are for these tools), the commands of `lhkit.cli` (the folder of the shipped scenarios, used if no
paths are given) and `lhkit.notebook.demo`. An import contract forbids all others.
"""
