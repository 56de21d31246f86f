"""Counts with their nouns, for messages and notes."""


def counted(count: int, noun: str, plural: str = "") -> str:
    """Write a count with its noun: `1 job`, `1,200 jobs`, `2 policies` where the plural is no mere s."""
    return f"{count:,} {noun if count == 1 else plural or noun + 's'}"
