"""Models: weights, servers, HTTP clients, dialects, cassettes."""
