"""When a request may be sent again, and after how long: only before any answer began.

A loop of our own: retry libraries wrap a call, but here the response that finally came must stay
open and each failed try must be told in the record.

Sources: full jitter and doubling as in AWS's "Exponential Backoff And Jitter"; `Retry-After` in
seconds, RFC 9110 §10.2.3 (its date form is not obeyed: no wall clock here).
"""

import random
from dataclasses import dataclass

_BUSY = frozenset({429, 503})
_GATEWAY = frozenset({502, 504})


@dataclass(frozen=True, slots=True, kw_only=True)
class Backoff:
    """How often and how long. `longest_s` bounds one pause, `total_s` all of one request.

    A run has second tries of its own (`replay`'s `max_attempts`, 3): they play a whole sample again
    after these have failed. So one request is sent nine times at most.
    """

    retries: int = 2
    first_s: float = 0.5
    longest_s: float = 10.0
    total_s: float = 20.0

    def pause_s(
        self, failure: BaseException | None, *, failed: int, paused_s: float, rng: random.Random
    ) -> float | None:
        """Return how long to wait before the next try, None if there must be none.

        Args:
            failure: what aiohttp said of the try; None for a fault that it knows nothing of.
            failed: tries that have failed, this one included.
            paused_s: seconds already waited for this request.
            rng: where the jitter comes from.
        """
        if failed > self.retries or not may_pass(failure):
            return None
        asked_s = _retry_after_s(failure)
        ceiling_s = min(self.longest_s, self.first_s * 2 ** (failed - 1))
        pause_s = ceiling_s * rng.uniform(0.5, 1.0) if asked_s is None else asked_s
        is_too_long = pause_s > self.longest_s or paused_s + pause_s > self.total_s
        return None if is_too_long else pause_s


def may_pass(failure: BaseException | None) -> bool:
    """Return True for what another try may mend: refused, reset, too busy, a gateway's trouble.

    The server has generated nothing then, or nothing that anybody saw. An unknown host name, a
    bad certificate, a time-out and every other status stay what they are.
    """
    import aiohttp

    match failure:
        case aiohttp.ClientConnectorDNSError() | aiohttp.ClientSSLError():
            return False
        case aiohttp.ClientResponseError(status=status):
            return status in _BUSY or status in _GATEWAY
        case aiohttp.ClientOSError() | aiohttp.ServerDisconnectedError():
            return True
        case _:
            return False


def _retry_after_s(failure: BaseException | None) -> float | None:
    import aiohttp

    if not isinstance(failure, aiohttp.ClientResponseError) or failure.headers is None:
        return None
    told = failure.headers.get("Retry-After", "").strip()
    return float(told) if told.isascii() and told.isdigit() else None
