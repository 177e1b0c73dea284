"""A run in the formats of others: OpenAI's messages, tables in Parquet, a log of Inspect.

Each file is written piece by piece and is whole or not there; records are read one at a time.
"""
