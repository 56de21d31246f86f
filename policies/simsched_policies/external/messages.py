"""The answers of a scheduler in another process: one JSON object a line (docs/external.md)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from simsched.errors import nearest
from simsched.model import Allocation
from simsched.model.placement import NOTHING
from simsched.policy import CANCEL, Action, Decision, Decline, Onto, Place, Stop

VERSION = 1

#: The fields of each message of a client, and of a placed job, with the JSON types that they may have.
_READY = {"type": str, "version": int}
_DECISION = {
    "type": str, "jobs": dict, "rest": str, "wake_at_s": (int, float, type(None)), "watch": dict,
    "nodes": (list, type(None)), "diagnostics": dict, "order": list,
}  # fmt: skip
_PLACED = {"place": list, "beside": list, "onto": (str, type(None)), "restart": bool, "saved": bool}
_OTHERS = {"stop": str, "decline": list}


def ready(line: bytes) -> None:
    """Raise `ValueError` unless a line is the answer to `hello` of a client of this version."""
    message = _fields(_parsed(line), "ready", _READY)
    if message.get("version") != VERSION:
        raise ValueError(f"it speaks version {message.get('version')!r} of the protocol, and this is version {VERSION}")


def decision(line: bytes) -> tuple[Decision, list[str]]:
    """Return a client's decision and the order in which it considers jobs; `ValueError` if it breaks the rules."""
    message = _fields(_parsed(line), "decision", _DECISION)
    if message.get("rest", "stays") not in ("stays", "stops"):
        raise ValueError(f"'rest' is {message['rest']!r:.40}; it may be 'stays' or 'stops'")
    numbers = {name: _numbers(name, message.get(name, {})) for name in ("watch", "diagnostics")}
    jobs = {job: _action(job, one) for job, one in message.get("jobs", {}).items()}
    nodes, wake_at_s = message.get("nodes"), message.get("wake_at_s")
    made = Decision(jobs, message.get("rest", "stays"), wake_at_s, numbers["watch"], nodes, numbers["diagnostics"])
    return made, [str(job) for job in message.get("order", ())]


def _parsed(line: bytes) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"it is no JSON: {error}") from None


def _fields(message: Any, kind: str, known: Mapping[str, Any]) -> dict[str, Any]:
    if not isinstance(message, dict) or message.get("type", kind) != kind:
        raise ValueError(f"a message of the type '{kind}' was expected")
    for name, value in message.items():
        if name not in known:
            raise ValueError(f"'{name:.40}' is no field of '{kind}'; {nearest(name, known)}")
        if not isinstance(value, known[name]) or (isinstance(value, bool) and known[name] is not bool):
            raise ValueError(f"'{name}' of '{kind}' may not be {value!r:.40}")
    return message


def _numbers(name: str, found: Mapping[str, Any]) -> dict[str, float]:
    odd = [key for key, value in found.items() if isinstance(value, bool) or not isinstance(value, int | float)]
    if odd:
        raise ValueError(f"'{name}' of '{odd[0]:.40}' is {found[odd[0]]!r:.40}, and no number")
    return dict(found)


def _action(job: str, one: Any) -> Allocation | Action:
    if isinstance(one, list):
        return _gpus(job, one)
    if one == "cancel":
        return CANCEL
    if isinstance(one, dict) and "place" in one:
        more = _fields(one, f"jobs.{job}", _PLACED)
        at, beside = _gpus(job, more["place"]), tuple(map(str, more.get("beside", ())))
        terms = () if more.get("onto") is None else (Onto(more["onto"]),)
        return Place(at, beside, restart=more.get("restart", False), saved=more.get("saved", True), more=terms)
    if isinstance(one, dict) and len(one) == 1:
        [(what, value)] = _fields(one, f"jobs.{job}", _OTHERS).items()
        if what == "decline":
            return Decline(_gpus(job, value))
        if value in ("saved", "lost"):
            return Stop(value == "saved")
    raise ValueError(f"job '{job:.40}' has {one!r:.60}, which is no action")


def _gpus(job: str, pairs: list[Any]) -> Allocation:
    for pair in pairs:
        if not (isinstance(pair, list) and list(map(type, pair)) == [int, int]):
            raise ValueError(f"job '{job:.40}' has {pair!r:.40} where [node, GPUs] should be")
    return tuple((node, gpus) for node, gpus in pairs) or NOTHING
