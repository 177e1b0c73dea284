"""What is written down of a run: samples, turns, states, the manifest, and the journal of them."""
