"""Replay scenarios: options, plan, samples, simulated users, stress, rescoring.

The only room of the harness that runs a `ChatModel`; others call it. Scoring is asked for a
verdict, records are written as soon as a sample ends.
"""
