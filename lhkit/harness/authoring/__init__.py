"""For authors of scenarios: lint, reference models, mutants, accepted alternatives, drafts.

It runs scenarios with models that need no server. Nothing here is part of a run's score.
"""
