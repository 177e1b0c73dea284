"""From a function to a result: definition, registry, validation, dispatch.

Asks nobody: that is `lhkit.confirm`.
"""
