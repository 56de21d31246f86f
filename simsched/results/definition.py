"""Identifies the definitions by which a summary was computed."""

from __future__ import annotations

from functools import cache

from simsched.sources import closure_of

#: The module that computes summaries, with all metrics.
SUMMARY = "simsched.results.summary"


@cache
def summary_definition() -> str:
    """Hash the source code that computes a cell's summary, as 64 hexadecimal digits."""
    return closure_of([SUMMARY]).digest
