"""Serve Gemma models and talk to them: weights, servers, HTTP clients, dialects, cassettes."""
