"""How text stands in a grammar."""


def literal(text: str) -> str:
    """Return `text` as an EBNF string."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
