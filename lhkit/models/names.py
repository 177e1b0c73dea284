"""The names that options and project files take, without the modules that they name."""

DIALECT_NAMES = ("json", "pythonic", "functiongemma", "gemma4", "openai")
"""The values of `--dialect`."""
EMBEDDED_NAMES = ("gemma", "gemma-base")
"""The embedded models: tuned, and base."""
REFERENCE_NAMES = ("gold", "silent")
"""The models that can be named in place of a real one."""
