"""What a run leaves: records, manifest, journal, and what a later run can reuse.

The formats and their files. Judges no sample and computes no figure.
"""
