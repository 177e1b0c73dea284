"""For who writes scenarios: baselines, lint, mutants, accepted calls."""
