"""Kubernetes quantities, exact: `1500m` CPUs are 1500 thousandths, `1Gi` of memory is 2**30 bytes."""

from __future__ import annotations

import math
import re
from fractions import Fraction
from functools import lru_cache

from simsched.reading import MOST_DIGITS

#: The factor of each suffix.
_SUFFIXES = {
    "": Fraction(1),
    **{name: Fraction(1, 1000**power) for power, name in enumerate(("m", "u", "n"), 1)},
    **{name: Fraction(1000**power) for power, name in enumerate("kMGTPE", 1)},
    **{f"{name}i": Fraction(1024**power) for power, name in enumerate("KMGTPE", 1)},
}
_FORM = re.compile(r"([+-]?)([0-9]+\.?[0-9]*|\.[0-9]+)(?:([eE][+-]?[0-9]{1,3})|(n|u|m|k|[MGTPE]|[KMGTPE]i)?)")
#: The largest quantity.
_MOST = 2**63 - 1
#: Resources counted in thousandths; all others count in whole units (bytes, devices), rounded up.
IN_MILLI = frozenset({"cpu"})


def quantity(value: object) -> Fraction:
    """Return a quantity as Kubernetes reads it; raises `ValueError` for anything else, and above 2**63 - 1."""
    return _quantity(str(value).strip(), f"{value!r:.40}")


@lru_cache(maxsize=4096)
def _quantity(text: str, shown: str) -> Fraction:
    match = _FORM.fullmatch(text) if len(text) <= MOST_DIGITS else None
    if match is None:
        raise ValueError(f"{shown} is no quantity")
    sign, number, exponent, suffix = match.groups()
    size = Fraction(number) * (Fraction(10) ** int(exponent[1:]) if exponent else _SUFFIXES[suffix or ""])
    if size > _MOST:
        raise ValueError(f"'{text}' is more than {_MOST}")
    return -size if sign == "-" else size


def amount(resource: str, value: object, *, whole: bool = False) -> int:
    """Return a quantity of a resource in its units: thousandths of CPUs, else whole units.

    Rounds parts of a unit up, as Kubernetes does. Raises `ValueError` for an invalid or negative quantity, and with
    `whole` for a part of a device or other extended resource, which Kubernetes refuses in pods and nodes.
    """
    found = quantity(value)
    if found < 0:
        raise ValueError(f"'{value}' is negative")
    if whole and found.denominator != 1 and ("/" in resource or resource == "gpu"):
        raise ValueError(f"'{value}' is not whole, and nodes give '{resource}' in whole units")
    return math.ceil(found * 1000 if resource in IN_MILLI else found)


def written(resource: str, units: int) -> str:
    """Return an amount as a user writes it: `1500m` CPUs, `64Gi` of memory, plain counts of other resources."""
    if resource in IN_MILLI:
        return f"{units // 1000}" if units % 1000 == 0 else f"{units}m"
    if resource in ("memory", "ephemeral-storage"):
        for power, name in zip(range(6, 0, -1), "EPTGMK", strict=True):
            if units and units % 1024**power == 0:
                return f"{units // 1024**power}{name}i"
    return str(units)
