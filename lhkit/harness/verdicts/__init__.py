"""What is judged of one sample, from its record and its script alone."""
