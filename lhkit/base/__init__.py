"""The ground: JSON values, texts, errors, files, locales, redaction, schemas.

Imports nothing else of lhkit. A file belongs here only if rooms of two floors need it, and it knows
no tool, no model and no conversation.
"""
