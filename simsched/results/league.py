"""The results of a league, one entry for each policy in each contest, and the ranks of its policies.

A policy's mean JCT in a contest is told as its ratio to the bound, below which no schedule comes. The contests are
fixed and the seeds random: for each seed the ratios are averaged geometrically over the contests, so that no contest
outweighs another, and `share_of_way` tells how much of the way from FIFO's average to 1 a policy's covers. Student's t
is applied to one value for each seed, in which the luck of its jobs, which FIFO and the bound share, cancels out.

Pairs of policies are separated by Holm's step-down procedure (Scand. J. Statist. 6, 1979) over all pairs of a table at
`LEVEL`: the probability of any false separation is at most that, whatever the dependence between the pairs, and the
procedure is at least as powerful as Bonferroni's.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import combinations
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from simsched.arithmetic import log
from simsched.errors import input_error
from simsched.knowledge import marked, told
from simsched.results.statistics import Estimate, estimate
from simsched.results.stored import Count, Number, read_json
from simsched.results.writer import json_text

T = TypeVar("T")

LEAGUE_FILE = "league.json"
#: The policy at which the way to the bound begins.
FIRST = "fifo"
#: What is compared.
HEADLINE = "jct_mean_s"
#: The probability of any false separation in a table.
LEVEL = 0.05
_AGAIN = "run the league again, which repeats only what is missing"

Floats = npt.NDArray[np.float64]


def share_of_way(own: Sequence[float], first: Sequence[float], bound: Sequence[float]) -> float:
    """Return the share of the way from FIFO to the bound: 1 is optimal, 0 as FIFO, below 0 worse; NaN if there is none.

    With one value for each contest, `own` and `first` are averaged as ratios to the bound, geometrically. Shares
    themselves have no geometric mean, as some are below 0; these ratios are at least 1.
    """
    above, begins = (_above(values, bound) for values in (own, first))
    return (begins - above) / (begins - 1) if begins > 1 else math.nan


def _above(values: Sequence[float], bound: Sequence[float]) -> float:
    return math.exp(math.fsum(math.log(value / least) for value, least in zip(values, bound, strict=True)) / len(bound))


@dataclass(frozen=True)
class ContestPlace:
    """A contest: its jobs, what a good policy must do in it, and by seed a bound on the mean JCT of any schedule.

    `unbounded` is the reason why there is none.
    """

    name: str
    about: str = ""
    good: str = ""
    bounds: Mapping[str, Number] = field(default_factory=dict)
    unbounded: str = ""


@dataclass(frozen=True)
class Entry:
    """One policy in one contest, or the `reason` why it has no results.

    `knows` is what it was told, `code` a digest of the code that decides; `jobs` (digests), `values`, `timing` and
    `lost` (the jobs that lost most) are by seed. `timing` alone depends on the machine.
    """

    contest: str
    policy: str
    policy_name: str = ""
    params: Mapping[str, Any] = field(default_factory=dict)
    knows: Mapping[str, str] = field(default_factory=dict)
    reason: str = ""
    code: str = ""
    jobs: Mapping[str, str] = field(default_factory=dict)
    values: Mapping[str, Mapping[str, Number]] = field(default_factory=dict)
    timing: Mapping[str, Mapping[str, Number]] = field(default_factory=dict)
    lost: Mapping[str, Sequence[str]] = field(default_factory=dict)

    @property
    def shown_policy(self) -> str:
        """The label with the mark of the policy's knowledge."""
        return marked(self.policy, self.knows)

    @property
    def oracle(self) -> bool:
        """Whether it reads what no real scheduler has."""
        return told(self.knows) == "oracle"


@dataclass(frozen=True)
class LeagueTable:
    """All entries of a division; `digest` covers its contests and how the simulator interprets them."""

    name: str
    division: str
    digest: str
    description: str
    seeds: tuple[Count, ...]
    contests: tuple[ContestPlace, ...]
    entries: tuple[Entry, ...]
    told: tuple[str, ...] = ()

    @property
    def policies(self) -> tuple[str, ...]:
        """The labels of the policies in order."""
        return tuple(dict.fromkeys(entry.policy for entry in self.entries))

    def ran(self, contest: str = "") -> list[Entry]:
        """Return the entries with results, of one contest or of all."""
        return [one for one in self.entries if not one.reason and contest in ("", one.contest)]


def league_text(table: LeagueTable) -> str:
    """Return a league as JSON; the same entries give the same text."""
    return json_text(asdict(table))


def cells_digest(table: LeagueTable, policy: str) -> str:
    """Return the digest of all that a policy's cells hold but times of the machine."""
    own = [(one.contest, dict(one.jobs), one.values, one.lost) for one in table.ran() if one.policy == policy]
    return hashlib.sha256(json_text(own).encode()).hexdigest()


def read_league_table(place: Path) -> LeagueTable:
    """Read the league of a results folder, or of its file; raises `InputError` if there is none."""
    path = place / LEAGUE_FILE if place.is_dir() else place
    if not path.is_file():
        raise input_error(place, f"holds no league: it has no {LEAGUE_FILE}", "name what `simsched league` wrote")
    content: dict[str, Any] = read_json(path, LeagueTable)
    contests = tuple(ContestPlace(**one) for one in content["contests"])
    entries = tuple(Entry(**one) for one in content["entries"])
    known = {one.name for one in contests}
    strange = next((one.contest for one in entries if one.contest not in known), "")
    if strange:
        raise input_error(path, f"has an entry of the contest '{strange}', which it does not list", _AGAIN)
    head = (content["name"], content["division"], content["digest"], content["description"])
    return LeagueTable(*head, tuple(content["seeds"]), contests, entries, tuple(content["told"]))


def joined(own: LeagueTable, others: LeagueTable) -> LeagueTable:
    """Merge a league's entries into those of another, replacing its own; with fewer seeds only these count.

    Raises `InputError` unless both are of the same contests, had the same jobs throughout, and the same results for
    what both ran.
    """
    if others.digest != own.digest:
        message = f"holds '{others.name}', which is another league than this one, or meant something else then"
        raise input_error("--against", message, "run the league whose results these are, with the same version")
    if not set(own.seeds) <= set(others.seeds):
        message = f"the results beside which this is played have the seeds {', '.join(map(str, others.seeds))}"
        raise input_error("--seeds", message, "give some of these, or leave --against out")
    jobs = {(one.contest, seed): digest for one in others.ran() for seed, digest in one.jobs.items()}
    theirs = {(one.contest, one.policy): one for one in others.entries}
    for one in own.ran():
        for seed, digest in one.jobs.items():
            if jobs.get((one.contest, seed), digest) != digest:
                message = f"had other jobs at {one.contest}, seed {seed}"
                raise input_error("--against", message, "run the league with the same version of simsched")
        _require_alike(one, theirs.get((one.contest, one.policy)))
    taken = {(one.contest, one.policy) for one in own.entries}
    kept = tuple(_of_seeds(one, own.seeds) for one in others.entries if (one.contest, one.policy) not in taken)
    places = tuple(replace(one, bounds=_of(own.seeds, one.bounds)) for one in others.contests)
    remarks = tuple(dict.fromkeys((*others.told, *own.told)))
    return replace(own, contests=places, entries=(*kept, *own.entries), told=remarks)


def _of_seeds(entry: Entry, seeds: Sequence[int]) -> Entry:
    values, timing = ({name: _of(seeds, one) for name, one in known.items()} for known in (entry.values, entry.timing))
    return replace(entry, values=values, timing=timing, jobs=_of(seeds, entry.jobs), lost=_of(seeds, entry.lost))


def _of(seeds: Sequence[int], known: Mapping[str, T]) -> dict[str, T]:
    return {str(seed): known[str(seed)] for seed in seeds if str(seed) in known}


def _require_alike(own: Entry, other: Entry | None) -> None:
    """Raise `InputError` if the results of a shipped policy changed; a policy from a file may have changed."""
    if other is None or other.reason or (":" in own.policy_name and own.policy_name == other.policy_name):
        return
    if own.policy_name != other.policy_name:
        raise input_error("--against", f"has a policy called '{own.policy}' too", "give the new one another name")
    for name, values in own.values.items():
        for seed, value in values.items():
            if other.values.get(name, {}).get(seed, value) != value:
                message = f"has another {name} of '{own.policy}' at {own.contest}, seed {seed}, than this version gives"
                raise input_error("--against", message, "run the league with the same version of simsched")


@dataclass(frozen=True)
class Standing:
    """A policy's place in a table: the share of the way from FIFO to the bound, and a rank between `best` and `worst`.

    These are the same unless policies are not separated from it; `shares` are by seed.
    """

    policy: str
    share: Estimate
    best: int
    worst: int
    shares: tuple[float, ...]


@dataclass(frozen=True)
class Standings:
    """The table of some contests, best first; `apart` are its separated pairs, the better first.

    `elsewhere` are policies that did not run all of these contests, with the number that they ran.
    """

    contests: tuple[str, ...]
    rows: tuple[Standing, ...]
    apart: frozenset[tuple[str, str]]
    elsewhere: Mapping[str, int]


def standings(table: LeagueTable, contests: Sequence[str] = (), *, oracles: bool = False) -> Standings:
    """Rank the policies that ran all of these contests (default: all with a bound); oracles among themselves."""
    bounds = {one.name: one.bounds for one in table.contests if one.bounds and one.name in (contests or (one.name,))}
    values: dict[str, dict[str, Mapping[str, float]]] = {}
    for one in table.ran():
        if one.contest in bounds:
            values.setdefault(one.shown_policy, {})[one.contest] = one.values[HEADLINE]
    oracle = {one.shown_policy for one in table.ran() if one.oracle}
    whole = {name: found for name, found in values.items() if len(found) == len(bounds)}
    first, seeds = whole.get(FIRST), [str(seed) for seed in table.seeds]
    if first is None or not bounds:
        return Standings(tuple(bounds), (), frozenset(), {})
    own = {name: found for name, found in whole.items() if (name in oracle) == oracles}

    def at(found: Mapping[str, Mapping[str, float]], seed: str) -> list[float]:
        return [found[name][seed] for name in bounds]

    shares = {
        name: tuple(share_of_way(at(found, seed), at(first, seed), at(bounds, seed)) for seed in seeds)
        for name, found in own.items()
    }
    logs = {name: log([_above(at(found, seed), at(bounds, seed)) for seed in seeds]) for name, found in own.items()}
    apart = separated(logs)
    names = sorted(own, key=lambda name: (-math.fsum(shares[name]), name))
    rows = tuple(_standing(name, names, shares[name], apart) for name in names)
    elsewhere = {
        name: len(found) for name, found in values.items() if name not in whole and (name in oracle) == oracles
    }
    return Standings(tuple(bounds), rows, apart, elsewhere)


def _standing(
    name: str, names: Sequence[str], shares: tuple[float, ...], apart: frozenset[tuple[str, str]]
) -> Standing:
    better = sum((other, name) in apart for other in names)
    worse = sum((name, other) in apart for other in names)
    return Standing(name, estimate(shares), 1 + better, len(names) - worse, shares)


def separated(logs: Mapping[str, Floats], level: float = LEVEL) -> frozenset[tuple[str, str]]:
    """Return the pairs, lower first, whose values by seed Holm's procedure separates, over all pairs."""
    pairs = list(combinations(sorted(logs), 2))
    differences = [logs[one] - logs[other] for one, other in pairs]
    rejected = holm([p_value(one) for one in differences], level)
    found = zip(pairs, differences, rejected, strict=True)
    return frozenset(pair if one.mean() < 0 else (pair[1], pair[0]) for pair, one, apart in found if apart)


def holm(p_values: Sequence[float], level: float = LEVEL) -> list[bool]:
    """Return which hypotheses Holm's procedure rejects.

    The k-th smallest of m p-values, counted from 0, is rejected if each up to it is at most level / (m - k).
    """
    rejected = [False] * len(p_values)
    for step, place in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        if p_values[place] > level / (len(p_values) - step):
            break
        rejected[place] = True
    return rejected


def p_value(differences: Floats) -> float:
    """Return the two-sided p-value of Student's t that the mean of paired differences is 0.

    If all are equal it is 1 if they are 0, and 0 otherwise; a single difference has 1.
    """
    n, mean = len(differences), float(differences.mean())
    if n < 2 or mean == 0:
        return 1.0
    spread = float(differences.std(ddof=1))
    if spread <= 1e-12 * abs(mean):
        return 0.0
    from scipy.special import stdtr  # slow to load

    return float(2 * stdtr(n - 1, -abs(mean) / (spread / math.sqrt(n))))


def lost_most(table: LeagueTable, policy: str) -> list[str]:
    """Say which jobs lost most under a policy at the contest and seed where it covers least of the way."""
    own = [one for one in table.ran() if one.policy == policy]
    worst = min(
        ((row.shares[at], one, str(seed)) for one in own for row in _alone(table, one)
         for at, seed in enumerate(table.seeds)), key=lambda found: (found[0], found[2]), default=None,
    )  # fmt: skip
    return [] if worst is None else [f"{worst[1].contest}, seed {worst[2]}: {said}" for said in worst[1].lost[worst[2]]]


def _alone(table: LeagueTable, one: Entry) -> list[Standing]:
    rows = standings(table, (one.contest,), oracles=one.oracle).rows
    return [row for row in rows if row.policy == one.shown_policy]
