"""Cases of balanced placement on domains whose room is given: which are needed, which are chosen, what each gets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from simsched_policies.production.kueue.balanced import chosen_domains, dealt, filled
from simsched_policies.production.kueue.placing import Part, Placer, Room, Unplaced, Wanted
from simsched_policies.production.kueue.topology import Domains

Json = Mapping[str, Any]
#: What a domain says of its room; what it does not say is 0, beside a leader as without.
_ROOM = ("pods", "slices", "pods_led", "slices_led", "leaders")


def compared(case: Json) -> tuple[object, object]:
    """Return what is expected of a case, and what is found; domains with equal room are preferred by name."""
    names = sorted(one["id"] for one in case["domains"])
    by_name = {one["id"]: one for one in case["domains"]}
    led = {"pods_led": "pods", "slices_led": "slices"}
    counts = {
        key: np.array([by_name[name].get(key, by_name[name].get(led.get(key, ""), 0)) for name in names], np.int64)
        for key in _ROOM
    }
    size = case.get("slice_size", 1)
    wanted = Wanted(case["wanted_slices"] * size, 0, ((0, size),), leader=bool(case.get("leader", False)))
    placer = Placer(Domains((), ()), wanted, [Room(**counts, scores=None)])
    expected = case["balanced"]
    found = _found(placer, np.arange(len(names)), case.get("threshold", 0), names)
    return expected, {key: found[key] for key in expected}


def _found(placer: Placer, among: Any, threshold: int, names: list[str]) -> dict[str, object]:
    needed = filled(placer, placer.rooms[0], among)
    chosen = needed and chosen_domains(placer, placer.rooms[0], among, needed[0], threshold)
    try:
        parts: list[Part] | None = dealt(placer, 0, among, threshold)
    except Unplaced:
        parts = None
    return {
        "fits": needed is not None,
        "needed": needed[0] if needed else 0,
        "chosen": sorted(names[part.domain] for part in chosen or ()),
        "dealt": {names[part.domain]: part.amount for part in parts or ()},
        "leader_in": [names[part.domain] for part in parts or () if part.leader],
    }
