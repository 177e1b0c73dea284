"""The lessons that life-helper's adapter is trained with: who says what, and what is right then."""
