"""Tools of one's own, from phrases to a score: what a small model learns of them."""
