"""Puts the results of a league among those that ship, beside which one's own policy is ranked.

`python benchmarks/ship_league.py results/league-2026-smoke` writes `leagues/results/league-2026-smoke.json.gz`; from
the same results the same bytes.
"""

from __future__ import annotations

import gzip
import sys
from pathlib import Path

from simsched.results import league_text, read_league_table

SHIPPED = Path(__file__).resolve().parent.parent / "leagues" / "results"


def ship(results: Path) -> Path:
    """Check a league's results and write them compressed; raises `InputError` where there are none."""
    table = read_league_table(results)
    path = SHIPPED / f"{table.name}.json.gz"
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(gzip.compress(league_text(table).encode(), compresslevel=9, mtime=0))
    return path


if __name__ == "__main__":
    for place in sys.argv[1:]:
        path = ship(Path(place))
        sys.stdout.write(f"{path}: {path.stat().st_size:,} bytes\n")
