"""Tools for scenario authors: reference models, lint, mutants, accepted alternatives."""
