"""The results of a league: one entry for each policy in each contest, as in `league.json`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, TypedDict, TypeVar

from simsched.errors import input_error
from simsched.knowledge import marked, told
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
