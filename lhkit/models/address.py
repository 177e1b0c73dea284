"""The addresses of model servers, without a client."""

import yarl

from lhkit.base.errors import UsageError

_PORTS = 65_536


def invalid_address(address: str) -> UsageError:
    """Return the exception for an invalid address."""
    return UsageError(f"Invalid server address {address!r}: give --base-url http://HOST:PORT.")


def require_address(base_url: str) -> None:
    """Check the address of a server, before anything is sent.

    Raises:
        UsageError: it is invalid, or contains a password, which would get into every record.
    """
    if "@" in base_url[1:]:
        raise UsageError("Invalid --base-url: it contains a password. Set LHKIT_API_KEY instead.")
    try:
        url = yarl.URL(base_url)
        is_valid = url.scheme in {"http", "https"} and bool(url.host)
        is_valid = is_valid and (url.port or 0) in range(1, _PORTS)
    except ValueError:  # a huge port, unbalanced brackets
        is_valid = False
    if not is_valid:
        raise invalid_address(base_url)
