"""Tells by which definitions a summary was computed."""

from __future__ import annotations

from functools import cache

from simsched.sources import closure_of

#: The module that computes summaries, with all metrics.
SUMMARY = "simsched.results.summary"


@cache
def summary_definition() -> str:
    """Hash the source of everything that a cell's summary is computed by, in 64 hexadecimal digits."""
    return closure_of([SUMMARY]).digest
