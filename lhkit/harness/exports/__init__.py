"""Other formats: OpenAI messages and training data, Inspect logs, OpenTelemetry traces.

Files are written incrementally and replaced atomically; records are read one at a time. Reading
other formats is the task of `lhkit.imports`.
"""
