"""Stored output of a run: records, manifest, journal, and reuse by a later run.

The formats and their files. Judges no sample and computes no figure.
"""
