"""Counts with nouns, for messages."""


def counted(count: int, noun: str, plural: str = "") -> str:
    """Return a count with its noun: `1 job`, `1,200 jobs`, `2 policies` with an irregular plural."""
    return f"{count:,} {noun if count == 1 else plural or noun + 's'}"
