"""How a real scheduler would obtain a policy's signals, with marks for what none could."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum


class Known(StrEnum):
    """Whether and how a real scheduler could know something."""

    REPORTED = "reported"
    LEARNT = "learnt"
    PROFILED = "profiled"
    ORACLE = "oracle"


#: The mark after a policy's name in tables, and its meaning.
MARKS: Mapping[Known, tuple[str, str]] = {
    Known.ORACLE: ("†", "oracle: reads what no real scheduler knows"),
    Known.PROFILED: ("‡", "reads profiles measured before a job is submitted"),
}


def told(knows: Mapping[str, str]) -> str:
    """Return the class in which a policy competes by what it is told: the most that any of its signals takes."""
    if Known.ORACLE in knows.values():
        return "oracle"
    return "learned or profiled" if {Known.LEARNT, Known.PROFILED} & set(knows.values()) else "non-clairvoyant"


def marks(knows: Mapping[str, str]) -> str:
    """Return the marks of the signals that a policy reads, "" for none."""
    return "".join(mark for known, (mark, _) in MARKS.items() if known in knows.values())


def marked(label: str, knows: Mapping[str, str]) -> str:
    """Append the marks of a policy's signals to its label: `srtf †`."""
    return f"{label} {marks(knows)}" if marks(knows) else label


def legend(policies: Mapping[str, Mapping[str, str]], *, signals: bool = True) -> tuple[str, ...]:
    """Explain the marks of policies, by label, one line per mark used.

    With `signals` lines list who reads what: `† oracle: ... (sjf, srtf: remaining_work).`
    """
    lines = []
    for known, (mark, meaning) in MARKS.items():
        readers: dict[str, list[str]] = {}
        for label, knows in policies.items():
            read = ", ".join(sorted(signal for signal, how in knows.items() if how == known))
            if read:
                readers.setdefault(read, []).append(label)
        if readers:
            who = "; ".join(f"{', '.join(labels)}: {read}" for read, labels in readers.items())
            lines.append(f"{mark} {meaning} ({who})." if signals else f"{mark} {meaning}.")
    return tuple(lines)
