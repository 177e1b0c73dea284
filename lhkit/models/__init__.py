"""How a Gemma is served and spoken to: weights, server, transports and dialects. No app logic."""
