"""Reads the tables of Kueue's tests of balanced placement as cases: domains with their room, and a choice."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from simsched_policies.production.go_values import Call, Composite
from simsched_policies.production.kueue.go_builders import unread
from simsched_policies.production.kueue.go_objects import Json, fields_of, word

#: The room that a domain declares.
_ROOM = {
    "podCount": "pods",
    "state": "pods",
    "sliceCount": "slices",
    "sliceState": "slices",
    "podCountWithLeader": "pods_led",
    "stateWithLeader": "pods_led",
    "sliceCountWithLeader": "slices_led",
    "sliceStateWithLeader": "slices_led",
    "leaderCount": "leaders",
    "leaderState": "leaders",
}
#: What a case asks or expects, by the first of these words in the name of its field.
_ASKED = {
    "domains": "domains",
    "leader": "leader",
    "threshold": "threshold",
    "entropy": "entropy",
    "size": "slice_size",
    "slice": "wanted_slices",
    "slices": "wanted_slices",
}
_EXPECTED = {"fits": "fits", "fit": "fits", "ok": "fits", "found": "fits", "threshold": "threshold", "err": "failed",
             "error": "failed", "reason": "failed", "message": "failed", "count": "needed", "": "choice"}  # fmt: skip


def case_of(name: str, case: Composite, values: Mapping[str, Any]) -> Json:
    """Return one case; raises `InputError` naming a word that our format lacks."""
    made: Json = {"name": name}
    for key, given in case.fields.items():
        if key == "name" or _expects(key):
            continue
        asked = _meaning(key, _ASKED)
        if asked is None:
            raise unread(Call(str(key), None, (given,)))
        made[asked] = given
    if "wanted_slices" not in made:
        raise unread(Call("a table that places no slices", None, tuple(case.fields)))
    made["domains"] = [domain(one) for one in made.get("domains") or ()]
    made["leader"] = bool(made.get("leader", False))
    return made | {"balanced": _outcome(case, fields_of(values), with_shares="threshold" in made)}


def _expects(key: str) -> bool:
    return key.startswith(("want", "expect"))


def _meaning(key: str, meanings: Mapping[str, str]) -> str | None:
    """Return the meaning of a field from the words of its name."""
    words = [one.lower() for one in re.findall("[A-Z]?[a-z]+", key)]
    return next((meaning for one, meaning in meanings.items() if one in words), meanings.get(""))


def _outcome(case: Composite, fields: Iterable[str], *, with_shares: bool) -> Json:
    """Return what is expected; fields that only other cases of the table have default to nothing."""
    given = {_meaning(key, _EXPECTED): case.get(key) for key in fields if _expects(key)}
    expected: Json = {}
    if "fits" in given:
        expected["fits"] = bool(given["fits"])
    for number in {"needed", "threshold"} & set(given):
        expected[number] = given[number] or 0
    if "choice" in given:
        expected |= _wanted(() if given.get("failed") else given["choice"] or (), with_shares=with_shares)
    return expected


def domain(value: Any) -> Json:
    """Return a domain with its room, and the room of its children, if any."""
    if not isinstance(value, Composite):
        raise unread(value)
    made: Json = {"id": word(value.get("id"))}
    for key, given in value.fields.items():
        if key in _ROOM:
            made[_ROOM[key]] = given
        elif key == "levelValues":
            made["values"] = [word(one) for one in given]
        elif key == "children":
            made["children"] = [domain(one) for one in given or ()]
        elif key != "id":
            raise unread(Call(f"domain.{key}", None, (given,)))
    return made


def _wanted(given: Any, *, with_shares: bool) -> Json:
    """Return the chosen domains; with a threshold, also the slices of each and the domain of the leader."""
    if isinstance(given, Mapping):
        return {"dealt": {word(key): of for key, of in given.items()}}
    if not with_shares:
        return {"chosen": sorted(word(one) if isinstance(one, str) else domain(one)["id"] for one in given)}
    made = [domain(one) for one in given]
    leaders = [one["id"] for one in made if one.get("leaders", 0)]
    return {"dealt": {one["id"]: one.get("slices", 0) for one in made}} | ({"leader_in": leaders} if leaders else {})
