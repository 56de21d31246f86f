"""Cases of balanced placement on domains with given room: which are needed, which are chosen, what each gets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from simsched_policies.kubernetes.kueue.balanced import chosen_domains, dealt, entropy_of, filled
from simsched_policies.kubernetes.kueue.placing import Part, Placer, Room, Unplaced, Wanted
from simsched_policies.kubernetes.kueue.topology import Domains

Json = Mapping[str, Any]
#: The room that a domain declares; 0 if missing, with or without a leader.
_ROOM = ("pods", "slices", "pods_led", "slices_led", "leaders")


def compared(case: Json) -> tuple[object, object]:
    """Return the expected and the found result of a case; domains with equal room are ordered by name."""
    names = [one["id"] for one in sorted(case["domains"], key=lambda one: (one.get("values", ()), one["id"]))]
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
    parts = {number: by_name[name].get("children", ()) for number, name in enumerate(names)}
    evenness = {number: entropy_of([one.get("pods", 0) for one in children]) for number, children in parts.items()}
    found = _found(placer, case.get("threshold", 0), names, evenness if case.get("entropy", False) else None)
    return expected, {key: found[key] for key in expected}


def _found(placer: Placer, threshold: int, names: list[str], evenness: dict[int, float] | None) -> dict[str, object]:
    among = np.arange(len(names))
    needed = filled(placer, placer.rooms[0], among)
    chosen = needed and chosen_domains(placer, placer.rooms[0], among, needed[0], threshold, evenness)
    try:
        parts: list[Part] | None = dealt(placer, 0, among, threshold)
    except Unplaced:
        parts = None
    return {
        "fits": needed is not None,
        "needed": needed[0] if needed else 0,
        "threshold": min(placer.wanted.slices // needed[0], needed[1]) if needed else 0,
        "chosen": sorted(names[part.domain] for part in chosen or ()),
        "dealt": {names[part.domain]: part.amount for part in parts or ()},
        "leader_in": [names[part.domain] for part in parts or () if part.leader],
    }
