"""The ground: JSON values, texts, errors, files, locales, redaction, schemas.

Imports nothing else of lhkit. A file belongs here only if two rooms need it, one of them not above
the other, or the entry point does.
"""
