"""Attacks on simsched, to be run by hand: `python -m benchmarks.abuse`."""
