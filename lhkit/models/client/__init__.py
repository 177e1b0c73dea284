"""Speak HTTP with a running model server.

Requests, streams, errors and what a server reveals of itself. Starts no server and reads no
weights; chat templates run in a sandbox, in a process of its own.
"""
