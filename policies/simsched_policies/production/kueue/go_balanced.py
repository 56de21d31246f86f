"""The tables of Kueue's tests of balanced placement, as cases of our form: domains with their room, and a choice."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from simsched_policies.production.go_values import Call, Composite
from simsched_policies.production.kueue.go_objects import Json, fields_of, unread, word

#: What a domain says of its room.
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
_ASKED = {
    "sliceCount": "wanted_slices",
    "slices": "wanted_slices",
    "totalSlices": "wanted_slices",
    "sliceSize": "slice_size",
    "threshold": "threshold",
    "balanceThreshold": "threshold",
}
#: What is expected: whether all fit, how many domains are needed, that there is no choice, and which it is.
_FITS = ("wantFits", "wantFit")
_NEEDED = ("wantDomainCount", "wantDomainsCount", "wantSelectedDomainsCount")
_ERROR = ("wantErr", "wantError")
_WANTED = ("want", "wantDomains", "wantResult")


def case_of(name: str, case: Composite, values: Mapping[str, Any]) -> Json:
    """Return one case; a word that our form does not have is an `InputError` that names it."""
    made: Json = {"name": name}
    for key, given in case.fields.items():
        if key == "domains":
            made["domains"] = [domain(one) for one in given or ()]
        elif key == "leaderCount":
            made["leader"] = given > 0
        elif key in _ASKED:
            made[_ASKED[key]] = given
        elif key not in ("name", *_FITS, *_NEEDED, *_ERROR, *_WANTED):
            raise unread(Call(str(key), None, (given,)))
    fields = fields_of(values)
    expected: Json = {}
    if any(key in fields for key in _FITS):
        expected["fits"] = bool(_given(case, _FITS))
    if any(key in fields for key in _NEEDED):
        expected["needed"] = _given(case, _NEEDED) or 0
    if any(key in fields for key in _WANTED):
        failed = bool(_given(case, _ERROR))
        expected |= _wanted(() if failed else _given(case, _WANTED) or (), with_shares="threshold" in made)
    return made | {"balanced": expected}


def _given(case: Composite, names: tuple[str, ...]) -> Any:
    return next((case.get(name) for name in names if case.get(name) is not None), None)


def domain(value: Any) -> Json:
    """Return a domain with its room; what hangs below it has no part in the choice."""
    if not isinstance(value, Composite):
        raise unread(value)
    made: Json = {"id": word(value.get("id"))}
    for key, given in value.fields.items():
        if key in _ROOM:
            made[_ROOM[key]] = given
        elif key not in ("id", "levelValues"):
            raise unread(Call(f"domain.{key}", None, (given,)))
    return made


def _wanted(given: Any, *, with_shares: bool) -> Json:
    """Return which domains are chosen; where there is a threshold, how many slices each gets and who has the leader."""
    if isinstance(given, Mapping):
        return {"dealt": {word(key): of for key, of in given.items()}}
    if not with_shares:
        return {"chosen": sorted(word(one) if isinstance(one, str) else domain(one)["id"] for one in given)}
    made = [domain(one) for one in given]
    leaders = [one["id"] for one in made if one.get("leaders", 0)]
    return {"dealt": {one["id"]: one.get("slices", 0) for one in made}} | ({"leader_in": leaders} if leaders else {})
