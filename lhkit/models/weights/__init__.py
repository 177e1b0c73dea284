"""Weights on disk: folders, hashes, conversion, adapters, tokenizer.

Downloads and converts what a server reads, verified and resumable. Starts no server.
"""
