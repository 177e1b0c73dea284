"""Export runs: OpenAI messages, Inspect logs, OpenTelemetry traces.

Files are written incrementally and replaced atomically; records are read one at a time.
"""
