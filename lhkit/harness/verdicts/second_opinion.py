"""A server's parse beside ours: in which way it read the same response otherwise. Pure.

Ours is the measure only because its repairs are listed and its input is kept; who is right is for
the reader of the raw text to say.
"""

from collections.abc import Iterator, Mapping
from enum import StrEnum
from itertools import zip_longest
from typing import Any

from lhkit.harness.records.record import ModelCallRecord, ParsedCall
from lhkit.vocab.json_values import canonical

_QUOTES = "\"'"


class Difference(StrEnum):
    """What the server did to a call, compared with what we read in the same text."""

    LOST_CALL = "server_lost_call"
    EXTRA_CALL = "server_extra_call"  # where we read none
    CUT_CALL = "server_cut_call"  # a call where we read one that was cut off
    OTHER_TOOL = "server_other_tool"
    DROPPED_ARGUMENT = "server_dropped_argument"
    ADDED_ARGUMENT = "server_added_argument"
    CHANGED_TYPE = "server_changed_type"  # 3 for "3", or "3" for 3
    KEPT_QUOTES = "server_kept_quotes"
    CHANGED_VALUE = "server_changed_value"


def own_calls(said: ModelCallRecord) -> tuple[ParsedCall, ...] | None:
    """Return the calls that lhkit reads in the raw text; None where it does not know that text."""
    return said.calls if said.server_calls is None else said.own_calls


def own_fragment(said: ModelCallRecord) -> str:
    """Return the raw text of a call that we read as cut off."""
    return said.fragment if said.server_calls is None else said.own_fragment


def differences(said: ModelCallRecord) -> tuple[Difference, ...]:
    """Return in which ways the server's calls differ from ours, each once; none if nobody knows."""
    if said.server_calls is None or said.own_calls is None:
        return ()
    found: set[Difference] = set()
    for own, server in zip_longest(said.own_calls, said.server_calls):
        if server is None:
            found.add(Difference.LOST_CALL)
        elif own is None:
            found.add(Difference.CUT_CALL if said.own_fragment else Difference.EXTRA_CALL)
        else:
            found |= set(_of_a_call(own, server))
    return tuple(each for each in Difference if each in found)


def _of_a_call(own: ParsedCall, server: ParsedCall) -> Iterator[Difference]:
    if own.name != server.name:
        yield Difference.OTHER_TOOL
    if not (isinstance(own.args, Mapping) and isinstance(server.args, Mapping)):
        if canonical(own.args) != canonical(server.args):
            yield Difference.CHANGED_VALUE
        return
    if own.args.keys() - server.args.keys():
        yield Difference.DROPPED_ARGUMENT
    if server.args.keys() - own.args.keys():
        yield Difference.ADDED_ARGUMENT
    for name in own.args.keys() & server.args.keys():
        yield from _of_a_value(own.args[name], server.args[name])


def _of_a_value(own: Any, server: Any) -> Iterator[Difference]:
    if canonical(own) == canonical(server):
        return
    if isinstance(own, str) and isinstance(server, str) and server.strip(_QUOTES) == own:
        yield Difference.KEPT_QUOTES
    elif type(own) is not type(server):
        yield Difference.CHANGED_TYPE
    else:
        yield Difference.CHANGED_VALUE
