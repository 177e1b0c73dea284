"""Speak HTTP with a running model server.

Requests, streams, errors and what a server reveals of itself. Starts no process and reads no
weights.
"""
