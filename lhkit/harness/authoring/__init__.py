"""What helps to write scenarios: gold answers, bluffs, lint, mutants, accepting, checking data."""
