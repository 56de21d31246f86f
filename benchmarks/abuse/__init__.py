"""Attacks on simsched, started manually: `python -m benchmarks.abuse`."""
