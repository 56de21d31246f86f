"""Counts with nouns, times, and why a job waits, for messages."""

from enum import StrEnum


class Why(StrEnum):
    """Why a job waits. The policy's word comes before what is seen of the room: the first two, and else the last."""

    NO_ROOM = "no room"
    NOT_ON_ONE_NODE = "not on one node"
    OVER_QUOTA = "over quota"
    RESERVED = "reserved for another"
    ANOTHER_FIRST = "another comes first"
    LET_WAIT = "the policy lets it wait"


def seen_of_room(wanted: int, free: int, on_one: int, largest: int) -> tuple[Why, str]:
    """Judge why a job waits by the GPUs that are free, in all and on one node, the `largest` having so many."""
    told = f"{counted(free, 'GPU')} free"
    if free < wanted:
        return Why.NO_ROOM, told
    if on_one < wanted <= largest:
        return Why.NOT_ON_ONE_NODE, f"{told}, at most {on_one} on one"
    return Why.LET_WAIT, told


def counted(count: int, noun: str, plural: str = "") -> str:
    """Return a count with its noun: `1 job`, `1,200 jobs`, `2 policies` with an irregular plural."""
    return f"{count:,} {noun if count == 1 else plural or noun + 's'}"


def clock(seconds: float) -> str:
    """Return seconds since the start of a workload as hours, minutes and seconds: `26:03:09`."""
    whole = int(seconds)
    return f"{whole // 3600}:{whole // 60 % 60:02}:{whole % 60:02}"


def duration(seconds: float) -> str:
    """Write a round duration in its largest unit: `30 s`, `10 min`, `1 h`, `2 days`."""
    for unit, name in ((86_400, "days"), (3600, "h"), (60, "min")):
        if seconds >= unit:
            count = seconds / unit
            return f"{count:g} {'day' if name == 'days' and count == 1 else name}"
    return f"{seconds:g} s"
