"""One number for a policy: how much of the way from FIFO to the bound it covers, for people and for searches."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from simsched.errors import input_error
from simsched.experiment.league import read_league, shipped_results
from simsched.operators.league import FIRST, play
from simsched.results import estimate
from simsched.results.league import LeagueTable, Standing, lost_most, read_league_table, standings

#: The label of the policy that is scored.
_MINE = "mine"


def score(
    policy: str,
    *,
    division: str = "closed",
    league: str = "2026",
    seeds: int | Sequence[int] | None = None,
    unseen: int | Sequence[int] | None = None,
    out: Path | None = None,
    workers: int = 1,
    isolated: bool = True,
) -> dict[str, Any]:
    """Score a policy (`file.py:Class` or a registered name) on a division, as a dictionary of plain values.

    `score` is the share of the way from FIFO to the certified bound, with `interval` (None for one seed), `by_seed` and
    by `contests`; `decision_p99_s` the time of a decision, `lost_most` the jobs that lost most where it covers least.
    `seeds` are the first so many, or a list of one's own; as many `unseen` ones tell by how much less it covers of
    those. A policy that does not ship runs behind a wall (docs/external.md) unless `isolated` is False. `out` keeps
    cells for the next call. Raises `InputError` if it cannot run.

    >>> round(score("srtf", division="smoke", seeds=2)["score"], 1)  # doctest: +SKIP
    0.9
    """
    if out is None:
        with TemporaryDirectory() as folder:
            return score(policy, division=division, league=league, seeds=seeds, unseen=unseen,
                         out=Path(folder), workers=workers, isolated=isolated)  # fmt: skip
    row: dict[str, Any] = {"name": policy, "label": _MINE}
    table, place = _played(league, division, row, seeds, out, workers, isolated=isolated)
    own = [one for one in table.ran() if one.policy == _MINE]
    found: dict[str, Any] = {
        "score": place.share.mean,
        "interval": None if place.share.low is None else [place.share.low, place.share.high],
        "seeds": len(table.seeds),
        "by_seed": dict(zip(map(str, table.seeds), place.shares, strict=True)),
        "contests": {one.contest: _place(table, (one.contest,)).share.mean for one in own},
        "restarts": sum(sum(one.values["restarts"].values()) / len(table.seeds) for one in own) / len(own),
        "decision_p99_s": max(max(one.timing["decision_p99_s"].values()) for one in own),
        "lost_most": lost_most(table, _MINE),
        "overfits": [],
    }
    if unseen is not None:
        others, there = _played(league, division, row, unseen, out, workers, isolated=isolated)
        if set(others.seeds) & set(table.seeds) or len(others.seeds) != len(table.seeds):
            raise input_error("unseen", "as many seeds are needed as are seen, and no seed of these", "give others")
        found |= {"unseen": there.share.mean, "overfits": [_said(place, there)]}
    return found


def _played(
    league: str,
    division: str,
    row: dict[str, Any],
    seeds: int | Sequence[int] | None,
    out: Path,
    workers: int,
    *,
    isolated: bool,
) -> tuple[LeagueTable, Standing]:
    """Play a row beside the shipped results, or where these do not know its seeds, beside FIFO and new bounds."""
    spec, few = read_league(league, division)
    chosen = tuple(range(1, (seeds or few.seeds) + 1)) if seeds is None or isinstance(seeds, int) else tuple(seeds)
    path = shipped_results(spec, division)
    stored = None if path is None else read_league_table(path)
    if stored is not None and seeds is None:
        chosen = stored.seeds
    if stored is not None and not set(chosen) <= set(stored.seeds):
        stored = None
    if row["name"] == FIRST and stored is None:
        raise input_error("policy", f"the way begins at '{FIRST}': its score is 0", "name another one")
    table = play(league, spec, few, out, name=division, rows=[row], against=stored, seeds=chosen, workers=workers,
                 isolated=isolated)  # fmt: skip
    failed = next((one for one in table.entries if one.policy == _MINE and one.reason), None)
    if failed is not None:
        raise input_error(
            f"{row.get('params', {}).get('policy', row['name'])}", f"it cannot run at {failed.contest}: {failed.reason}"
        )
    return table, _place(table)


def _place(table: LeagueTable, contests: Sequence[str] = ()) -> Standing:
    mine = next(one.shown_policy for one in table.ran() if one.policy == _MINE)
    rows = [row for oracles in (False, True) for row in standings(table, contests, oracles=oracles).rows]
    return next(row for row in rows if row.policy == mine)


def _said(seen: Standing, unseen: Standing) -> str:
    """Compare shares on seen and unseen seeds, paired in their order; those of a seed are paired with FIFO already."""
    found = estimate(one - other for one, other in zip(seen.shares, unseen.shares, strict=True))
    if found.low is None or found.high is None:
        return f"seen seeds: about {found.mean:.1g} more than unseen ones (no interval for one seed)"
    told = "it overfits the seen seeds" if found.low > 0 else "no sign that it overfits the seen seeds"
    return f"{told}: {found.mean:+.3f} [{found.low:+.3f} to {found.high:+.3f}] more than on unseen ones"
