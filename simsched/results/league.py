"""The results of a league, one entry for each policy in each contest, and the ranks of its policies.

A measure of two policies under the same seed is compared as the logarithm of the ratio, so that longer jobs give a
workload no greater weight. The contests are fixed and the seeds random: for each seed the logarithms are averaged over
the contests, and Student's t is applied to these averages.

- Pairs are separated by Holm's step-down procedure (Scand. J. Statist. 6, 1979) over all pairs of a
  table at `LEVEL`: the probability of any false separation is at most that, whatever the dependence between the pairs,
  which is strong here, and the procedure is at least as powerful as Bonferroni's.
- The intervals shown are Bonferroni's over the same pairs, as Holm's procedure has no simple intervals. They hold
simultaneously; Holm may separate a pair whose interval contains 1.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import combinations
from pathlib import Path
from typing import Any, TypedDict, TypeVar

import numpy as np
import numpy.typing as npt

from simsched.errors import input_error
from simsched.knowledge import marked, told
from simsched.results.metrics import METRICS
from simsched.results.statistics import Estimate, student_t
from simsched.results.stored import Count, read_json
from simsched.results.writer import json_text

T = TypeVar("T")

LEAGUE_FILE = "league.json"
_AGAIN = "run the league again, which repeats only what is missing"
#: The measures of a league: those of the summaries, and the CPU time of a run with its decisions.
CPU_S = "cpu_s"
MEASURES = (
    "jct_mean_s", "jct_median_s", "jct_p99_s", "makespan_s", "rho_max", "rho_jain", "queueing_mean_s",
    "idle_gpu_hours", "restart_gpu_hours", "lost_gpu_hours", "energy_kwh", CPU_S,
)  # fmt: skip


@dataclass(frozen=True)
class ContestPlace:
    """A workload under a condition: its jobs, their mean offered load, and why it was not run, if so.

    `physics` names the enabled physics. `bounds` has, by seed, a lower bound on the mean JCT of any schedule, in
    seconds; `unbounded` is the reason why there is none.
    """

    workload: str
    condition: str
    about: str = ""
    offered_load: float | None = None
    physics: str = ""
    missing: str = ""
    bounds: Mapping[str, float] = field(default_factory=dict)
    unbounded: str = ""

    @property
    def name(self) -> str:
        """Name the contest."""
        return f"{self.workload}.{self.condition}"


@dataclass(frozen=True)
class Entry:
    """One policy in one contest: its measures and jobs by seed, or the `reason` why it has none.

    `knows` and `rigid` determine its class, `becomes` is what it reduces to without the physics that it relies on, and
    `code` is a digest of the code that produced it.
    """

    contest: str
    policy: str
    policy_name: str = ""
    knows: Mapping[str, str] = field(default_factory=dict)
    rigid: bool = True
    becomes: tuple[str, ...] = ()
    reason: str = ""
    code: str = ""
    jobs: Mapping[str, str] = field(default_factory=dict)
    values: Mapping[str, Mapping[str, float]] = field(default_factory=dict)

    @property
    def shown_policy(self) -> str:
        """The label with the mark of the policy's knowledge."""
        return marked(self.policy, self.knows)

    @property
    def league_class(self) -> str:
        """The class in which it competes."""
        return f"{told(self.knows)}, {'rigid' if self.rigid else 'elastic'}"


@dataclass(frozen=True)
class LeagueTable:
    """All entries of a league; `digest` covers its declaration and how the simulator interprets it.

    `told` are remarks on some of its rows: how they were tuned, and that other code produced them.
    """

    name: str
    digest: str
    description: str
    seeds: tuple[int, ...]
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


class _Contest(TypedDict):
    workload: str
    condition: str
    about: str
    offered_load: float | None
    physics: str
    missing: str
    bounds: dict[str, float]
    unbounded: str


class _Entry(TypedDict):
    contest: str
    policy: str
    policy_name: str
    knows: dict[str, str]
    rigid: bool
    becomes: list[str]
    reason: str
    code: str
    jobs: dict[str, str]
    values: dict[str, dict[str, float]]


class _League(TypedDict):
    name: str
    digest: str
    description: str
    seeds: list[Count]
    contests: list[_Contest]
    entries: list[_Entry]
    told: list[str]


def league_text(table: LeagueTable) -> str:
    """Return a league as JSON; the same entries give the same text."""
    return json_text(asdict(table))


def read_league_table(place: Path) -> LeagueTable:
    """Read the league of a results folder, or of its file; raises `InputError` if there is none."""
    path = place / LEAGUE_FILE if place.is_dir() else place
    if not path.is_file():
        raise input_error(place, f"holds no league: it has no {LEAGUE_FILE}", "name what `simsched league` wrote")
    content: dict[str, Any] = read_json(path, _League)
    contests = tuple(ContestPlace(**one) for one in content["contests"])
    entries = tuple(Entry(**{**one, "becomes": tuple(one["becomes"])}) for one in content["entries"])
    known = {one.name for one in contests}
    strange = next((one.contest for one in entries if one.contest not in known), "")
    if strange:
        raise input_error(path, f"has an entry of the contest '{strange}', which it does not list", _AGAIN)
    head = (content["name"], content["digest"], content["description"])
    return LeagueTable(*head, tuple(content["seeds"]), contests, entries, tuple(content["told"]))


def require_same_league(others: LeagueTable, digest: str) -> None:
    """Raise `InputError` unless results are of the league of this digest."""
    if others.digest != digest:
        message = f"holds '{others.name}', which is another league than this one, or meant something else then"
        raise input_error("--against", message, "run the league whose results these are, with the same version")


def joined(own: LeagueTable, others: LeagueTable) -> LeagueTable:
    """Merge a league's entries into those of another, replacing its own; with fewer seeds only these count.

    Raises `InputError` unless both had the same jobs throughout, and the same results for what both ran.
    """
    require_same_league(others, own.digest)
    if not set(own.seeds) <= set(others.seeds):
        message = f"the results beside which this is played have {len(others.seeds)} seeds"
        raise input_error("--seeds", message, "give no more, or leave it out")
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
    told = tuple(dict.fromkeys((*others.told, *own.told)))
    head = (own.name, own.digest, own.description, own.seeds, _contests(own, others))
    return LeagueTable(*head, (*kept, *own.entries), told)


def _of_seeds(entry: Entry, seeds: Sequence[int]) -> Entry:
    values = {metric: _of(seeds, known) for metric, known in entry.values.items()}
    return replace(entry, values=values, jobs=_of(seeds, entry.jobs))


def _of(seeds: Sequence[int], known: Mapping[str, T]) -> dict[str, T]:
    return {str(seed): known[str(seed)] for seed in seeds if str(seed) in known}


def _require_alike(own: Entry, other: Entry | None) -> None:
    """Raise `InputError` if the results of a shipped policy changed; a policy from a file may have changed."""
    if other is None or other.reason or (":" in own.policy_name and own.policy_name == other.policy_name):
        return
    if own.policy_name != other.policy_name:
        raise input_error("--against", f"has a policy called '{own.policy}' too", "give the new one another name")
    for name in MEASURES:
        for seed, value in own.values.get(name, {}).items():
            if name != CPU_S and other.values.get(name, {}).get(seed, value) != value:
                message = f"has another {name} of '{own.policy}' at {own.contest}, seed {seed}, than this version gives"
                raise input_error("--against", message, "run the league with the same version of simsched")


def _contests(own: LeagueTable, others: LeagueTable) -> tuple[ContestPlace, ...]:
    known: Iterable[ContestPlace] = (*own.contests, *others.contests)  # which have the bounds
    found = {one.name: replace(one, bounds=_of(own.seeds, one.bounds)) for one in known if not one.missing}
    names = dict.fromkeys(one.name for one in (*others.contests, *own.contests))
    missing = {one.name: one for one in own.contests if one.missing}
    return tuple(found.get(name) or missing[name] for name in names if name in found or name in missing)


#: The half-width of a ratio's logarithm beyond which an interval is uninformative: a factor of 1,000 either way.
_WIDEST = math.log(1000)
#: The probability of any false separation in a table.
LEVEL = 0.05

Logs = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Standing:
    """A policy's place in a table.

    `ratio` is its measure over that of the first, with the simultaneous interval; its rank is between `best` and
    `worst`, by the policies separated from it. `mean` is the geometric mean over contests and seeds.
    """

    policy: str
    mean: float
    ratio: Estimate
    best: int
    worst: int
    beaten: tuple[str, ...]


@dataclass(frozen=True)
class Standings:
    """The table of a class over some contests; `apart` are its separated pairs, the better first.

    `elsewhere` are the policies of the class that did not run all of these contests, with the number that they ran.
    """

    league_class: str
    metric: str
    contests: tuple[str, ...]
    rows: tuple[Standing, ...]
    apart: frozenset[tuple[str, str]]
    elsewhere: Mapping[str, int]

    @property
    def cliques(self) -> tuple[tuple[str, ...], ...]:
        """The maximal runs of rows without a separated pair, for the bars of a critical-difference diagram."""
        names = [row.policy for row in self.rows]
        runs = []
        for first in range(len(names)):
            last = first
            while last + 1 < len(names) and not any(
                (one, names[last + 1]) in self.apart for one in names[first : last + 1]
            ):
                last += 1
            runs.append((first, last))
        longest = [one for one in runs if one[1] > one[0] and not any(a < one[0] and one[1] <= b for a, b in runs)]
        return tuple(tuple(names[first : last + 1]) for first, last in longest)


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


def p_value(differences: Logs) -> float:
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


def standings(table: LeagueTable, league_class: str, contests: Sequence[str], metric: str = "jct_mean_s") -> Standings:
    """Rank the policies of a class that ran all of these contests, best first."""
    own = [one for one in table.ran() if one.league_class == league_class and one.contest in contests]
    by_policy: dict[str, dict[str, Entry]] = {}
    for one in own:
        by_policy.setdefault(one.shown_policy, {})[one.contest] = one
    seeds = [str(seed) for seed in table.seeds]
    logs = {
        policy: np.mean([[math.log(entries[at].values[metric][seed]) for seed in seeds] for at in contests], axis=0)
        for policy, entries in by_policy.items()
        if all(at in entries and _positive(entries[at], metric, seeds) for at in contests)
    }
    if not _lower_is_better(metric):
        logs = {policy: -values for policy, values in logs.items()}
    elsewhere = {policy: len(entries) for policy, entries in by_policy.items() if policy not in logs}
    apart = separated(logs)
    names = sorted(logs, key=lambda name: (float(logs[name].mean()), name))
    sign = 1 if _lower_is_better(metric) else -1
    rows = tuple(_standing(name, names, logs, apart, sign) for name in names)
    return Standings(league_class, metric, tuple(contests), rows, apart, elsewhere)


def _standing(
    name: str, names: Sequence[str], logs: Mapping[str, Logs], apart: frozenset[tuple[str, str]], sign: int
) -> Standing:
    beaten = tuple(other for other in names if (name, other) in apart)
    better = sum((other, name) in apart for other in names)
    ratio = _ratio(sign * (logs[name] - logs[names[0]]), len(names))
    mean = math.exp(sign * float(logs[name].mean()))
    return Standing(name, mean, ratio, 1 + better, len(names) - len(beaten), beaten)


def _ratio(differences: Logs, rows: int) -> Estimate:
    """Return the geometric mean ratio with an interval that holds simultaneously for all pairs of this many rows."""
    n, mean = len(differences), float(differences.mean())
    if n < 2:
        return Estimate(math.exp(mean), n)
    pairs = max(1, rows * (rows - 1) // 2)
    half = student_t(n - 1, 1 - LEVEL / pairs) * float(differences.std(ddof=1)) / math.sqrt(n)
    if half > _WIDEST:  # as of two seeds
        return Estimate(math.exp(mean), n)
    return Estimate(math.exp(mean), n, math.exp(mean - half), math.exp(mean + half))


def separated(logs: Mapping[str, Logs], level: float = LEVEL) -> frozenset[tuple[str, str]]:
    """Return the pairs, lower first, whose values by seed Holm's procedure separates, over all pairs."""
    pairs = list(combinations(sorted(logs), 2))
    differences = [logs[one] - logs[other] for one, other in pairs]
    rejected = holm([p_value(one) for one in differences], level)
    told = zip(pairs, differences, rejected, strict=True)
    return frozenset(pair if found.mean() < 0 else (pair[1], pair[0]) for pair, found, apart in told if apart)


def who_beats_whom(
    table: LeagueTable, league_class: str, metric: str = "jct_mean_s"
) -> dict[tuple[str, str], tuple[int, int]]:
    """Return for each pair of a class in how many contests the first is separated from the second, and of how many.

    Only contests with both count. Error rates hold for each contest separately.
    """
    found: dict[tuple[str, str], tuple[int, int]] = {}
    for place in table.contests:
        here = standings(table, league_class, (place.name,), metric)
        for one, other in _ordered_pairs([row.policy for row in here.rows]):
            won, both = found.get((one, other), (0, 0))
            found[one, other] = won + ((one, other) in here.apart), both + 1
    return found


def _ordered_pairs(names: Sequence[str]) -> Iterator[tuple[str, str]]:
    for one, other in combinations(names, 2):
        yield one, other
        yield other, one


def _positive(entry: Entry, metric: str, seeds: Sequence[str]) -> bool:
    values = entry.values.get(metric, {})
    return all(values.get(seed, 0) > 0 for seed in seeds)


def _lower_is_better(metric: str) -> bool:
    return metric == CPU_S or METRICS[metric].better != "higher"


@dataclass(frozen=True)
class Beside:
    """A policy relative to the best possible in a contest: an upper bound on the gap, and the covered way from FIFO.

    Both are shares; `way` is None without FIFO, or if FIFO is at the bound.
    """

    contest: str
    policy: str
    league_class: str
    above: float
    way: float | None


def beside_the_bound(table: LeagueTable, first_come: str = "fifo") -> list[Beside]:
    """Compare the mean JCTs of all policies with the bounds of the contests that have them, summed over the seeds."""
    found = []
    for place in table.contests:
        seeds = list(place.bounds)
        entries = table.ran(place.name)
        first = next((one for one in entries if one.policy == first_come), None)
        for one in entries if seeds else ():
            values = one.values.get("jct_mean_s", {})
            if not all(seed in values for seed in seeds):
                continue
            least = sum(place.bounds[seed] for seed in seeds)
            own = sum(values[seed] for seed in seeds)
            from_first = None if first is None else sum(first.values["jct_mean_s"][seed] for seed in seeds)
            way = (from_first - own) / (from_first - least) if from_first is not None and from_first > least else None
            found.append(Beside(place.name, one.shown_policy, one.league_class, own / least - 1, way))
    return found
