"""Export runs: OpenAI messages, Parquet tables, Inspect logs.

Files are written incrementally and replaced atomically; records are read one at a time.
"""
