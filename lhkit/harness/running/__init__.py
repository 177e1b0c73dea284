"""Replay scenarios: options, plan, samples, simulated users, stress, rescoring.

The only room of the harness that calls a model. Scoring is asked for a verdict, records are written
as soon as a sample ends.
"""
