"""Counts with nouns, and times, for messages."""


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
