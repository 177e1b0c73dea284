"""A module in the folder of a toolset that imports it."""

ODD_ONE = 5
