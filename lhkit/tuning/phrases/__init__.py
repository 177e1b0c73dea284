"""Training conversations from a phrase file of one's own."""
