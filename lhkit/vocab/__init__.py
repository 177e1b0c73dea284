"""The nouns every other part shares: frozen values, standard library only, no I/O."""
