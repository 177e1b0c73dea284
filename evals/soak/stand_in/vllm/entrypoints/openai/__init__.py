"""In place of the package of that name."""
