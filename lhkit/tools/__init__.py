"""From a function to a result: definition, registry, validation, dispatch."""
