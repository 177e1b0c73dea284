"""Ranges of numbers as EBNF: exactly the decimal texts of the numbers from one to another."""

FRACTION_DIGITS = 17
"""As many as Python ever writes of a float without an exponent."""


def integers(low: int, high: int) -> str:
    """Return an expression for each integer from `low` to `high`, without leading zeros.

    Raises:
        ValueError: there is none.
    """
    _require(low, high)
    negative = [f'"-" {_any_of(_naturals(max(1, -high), -low))}'] if low < 0 else []
    natural = _naturals(max(0, low), high) if high >= 0 else []
    return _any_of([*negative, *natural])


def decimals(low: int, high: int, *, low_open: bool = False, high_open: bool = False) -> str:
    """Return an expression for each number from `low` to `high`, without exponents.

    An open end does not belong to the range itself.

    Raises:
        ValueError: there is none.
    """
    _require(low, high - (low_open or high_open))
    negative, positive = [], []
    if low < 0:
        ends_open = (high_open and high <= 0, low_open)
        negative = [f'"-" ({each})' for each in _magnitudes(max(0, -high), -low, *ends_open)]
    if high >= 0:
        positive = _magnitudes(max(0, low), high, low_open and low >= 0, high_open)
    return _any_of([*negative, *positive])


def _require(low: int, high: int) -> None:
    if low > high:
        raise ValueError(f"nothing lies between {low} and {high}")


def _magnitudes(low: int, high: int, low_open: bool, high_open: bool) -> list[str]:
    """Return alternatives for numbers from `low` to `high`, which has no digits but `.0`."""
    found: list[str] = []
    if low_open and low < high:
        more = FRACTION_DIGITS - 1
        found.append(f'"{low}." "0"{{0,{more}}} [1-9] [0-9]{{0,{more}}}')
        low += 1
    if low < high:
        below = _any_of(_naturals(low, high - 1))
        found.append(f'{below} ("." [0-9]{{1,{FRACTION_DIGITS}}})?')
    if low > high or high_open or (low_open and low == high and not found):
        return found
    return [*found, f'"{high}" ".0"?']


def _naturals(low: int, high: int) -> list[str]:
    """Return alternatives for `low` to `high`, both at least 0, one length of text at a time."""
    found: list[str] = []
    for length in range(len(str(low)), len(str(high)) + 1):
        least = 10 ** (length - 1) if length > 1 else 0
        first = str(max(low, least))
        found += _same_length(first, str(min(high, 10**length - 1)))
    return found


def _same_length(low: str, high: str) -> list[str]:
    """Return alternatives for the digit texts from `low` to `high`, which are equally long."""
    if not low:
        return [""]
    rest = len(low) - 1
    if low[0] == high[0]:
        return [_joined(f'"{low[0]}"', tail) for tail in _same_length(low[1:], high[1:])]
    begin, end = int(low[0]), int(high[0])
    found: list[str] = []
    if set(low[1:]) - {"0"}:
        found += [_joined(f'"{begin}"', tail) for tail in _same_length(low[1:], "9" * rest)]
        begin += 1
    last: list[str] = []
    if set(high[1:]) - {"9"}:
        last = [_joined(f'"{end}"', tail) for tail in _same_length("0" * rest, high[1:])]
        end -= 1
    if begin <= end:
        found.append(_joined(f"[{begin}-{end}]", f"[0-9]{{{rest}}}" if rest else ""))
    return found + last


def _joined(first: str, rest: str) -> str:
    return f"{first} {rest}".rstrip()


def _any_of(alternatives: list[str]) -> str:
    return f"({' | '.join(alternatives)})"
