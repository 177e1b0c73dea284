"""What a scenario expects, and whether a value, a call or a list of calls is that."""
