"""The declaration of a league: contests with frozen lists of jobs, divisions, and entries that others submit."""

from __future__ import annotations

import gzip
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from simsched.documents import Document, Section, draft_of, read_section, yaml_lines
from simsched.engine import SEMANTICS
from simsched.errors import InputError, Problem, input_error, nearest
from simsched.experiment.task import digest_of
from simsched.experiment.validation import check_experiment
from simsched.files import write_text, written_aside
from simsched.model import JobSpec, NodeShape
from simsched.model.placement import Amount
from simsched.paths import data_folder
from simsched.policy import registry
from simsched.reading import parse_json, read_text
from simsched.sources import content_of, plugin_code
from simsched.version import __version__

Name = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9.-]*$", max_length=40)]
#: Dotted keys of an experiment and their values.
Keys = dict[str, Any]
#: Jobs of a contest by seed.
Lists = Mapping[int, Sequence[JobSpec]]
#: Fields of jobs that are not in a frozen list: the workload's key gives the first, their order the second.
_DERIVED = ("speedup", "id")
#: The rooms whose code decides what a policy's cells hold.
_DECIDE = ("agent", "applications", "engine", "model", "policy", "toolkit")


class ContestSpec(Section):
    """The jobs of a contest, other keys of its experiment, and `good`, what a good policy must do in it.

    `lists` is the digest of its frozen lists; without it they are drawn when it is played.
    """

    about: str = Field(min_length=1)
    good: str = Field(min_length=1)
    workload: Keys = Field(default_factory=dict)
    keys: Keys = Field(default_factory=dict)
    lists: str = ""


class LeagueRow(Section):
    """A policy that takes part, with its defaults unless `params` says otherwise."""

    name: str
    label: str | None = None
    params: dict[str, Any] = Field(default_factory=dict)


class Division(Section):
    """A table of its own: contests, how many seeds, who takes part, and who does not and why."""

    about: str = Field(min_length=1)
    seeds: int = Field(ge=2, le=1000)
    contests: list[str] = Field(min_length=1)
    policies: list[LeagueRow] = Field(min_length=1)
    left_out: dict[str, str] = Field(default_factory=dict)

    @model_validator(mode="before")
    @classmethod
    def _by_name(cls, data: Any) -> Any:
        rows = data.get("policies") if isinstance(data, dict) else None
        if not isinstance(rows, list):
            return data
        return data | {"policies": [{"name": one} if isinstance(one, str) else one for one in rows]}


class LeagueSpec(Section):
    """A league: of each list of `jobs` the shares `warm_up` and `tail`, by submission, run but do not count.

    Submissions are spread in time so that FIFO's mean wait is about `wait` of its mean JCT, and within `between`.
    """

    format: Literal["simsched-league/2"]
    name: Name
    description: str = ""
    jobs: int = Field(ge=10)
    warm_up: float = Field(default=0.1, ge=0, lt=0.5)
    tail: float = Field(default=0.1, ge=0, lt=0.5)
    wait: float = Field(default=0.45, gt=0, lt=1)
    between: tuple[float, float] = (0.2, 0.66)
    usual: Keys = Field(default_factory=dict)
    contests: dict[Name, ContestSpec] = Field(min_length=1)
    divisions: dict[Name, Division] = Field(min_length=1)

    @property
    def counted(self) -> tuple[int, int]:
        """The places, by submission, of the first job that counts and of the first after these."""
        return round(self.warm_up * self.jobs), self.jobs - round(self.tail * self.jobs)

    def document(self, contest: str, rows: Sequence[Mapping[str, Any]]) -> Document:
        """Return a contest's experiment with these policies and its jobs as drawn for seed 1."""
        begun = {"name": f"{self.name}.{contest}", "policies": list(rows), "seeds": [1], "report": {"plots": False}}
        draft = draft_of(yaml_lines.parse(json.dumps(begun), f"{self.name}, {contest}"), ())
        one = self.contests[contest]
        usual = {key: value for key, value in self.usual.items() if key not in one.keys}
        for key, value in {**usual, "workload": one.workload, **one.keys}.items():
            draft.set(key, value, self.name)
        return replace(draft.document, data=draft.data)

    def digest(self, contests: Sequence[str]) -> str:
        """Return the digest of contests and of how the simulator understands them; equal ones may be compared."""
        told = {name: self.contests[name].model_dump(exclude={"about", "good"}) for name in contests}
        rest = self.model_dump(exclude={"description", "contests", "divisions", "name"})
        return digest_of((SEMANTICS, rest, told))[:16]


def find_league(name: str) -> Path:
    """Find a league by the path of its file, or a shipped league by its name: `league-2026` or `2026`."""
    path = Path(name)
    if path.is_file():
        return path
    shipped = {file.stem: file for file in sorted(data_folder("leagues").glob("*.yaml"))}
    key = name.removeprefix("league-").removeprefix("league/")
    if key not in shipped:
        raise input_error(name, "there is no such file, and no shipped league of that name", nearest(key, shipped))
    return shipped[key]


def read_league(name: str, division: str) -> tuple[LeagueSpec, Division]:
    """Read a league and one of its divisions; raises `InputError` with every problem."""
    path = find_league(name)
    spec = read_section(path, LeagueSpec)
    if division not in spec.divisions:
        raise input_error(path, f"does not declare a division '{division}'", nearest(division, spec.divisions))
    for one in spec.divisions[division].contests:
        if one not in spec.contests:
            raise input_error(path, f"divisions.{division}.contests: there is no '{one}'", nearest(one, spec.contests))
    return spec, spec.divisions[division]


def lists_file(league: str, contest: str) -> Path:
    """Return the file of a contest's frozen lists, beside the file of its league."""
    return find_league(league).parent / "lists" / f"{contest}.json.gz"


def write_lists(league: str, contest: str, lists: Lists) -> str:
    """Freeze the lists of a contest, and return the digest to declare; raises `InputError` if they come out otherwise.

    Their file names the version of simsched that drew them.
    """
    content = {str(seed): {"jobs": len(jobs), "columns": _plain(jobs)} for seed, jobs in lists.items()}
    text = json.dumps({"simsched": __version__, "seeds": content}, separators=(",", ":"))
    path = lists_file(league, contest)
    with written_aside(path) as aside:
        aside.write_bytes(gzip.compress(text.encode(), mtime=0))
    digest = hashlib.sha256(text.encode()).hexdigest()
    for seed, jobs in read_lists(league, contest, digest).items():
        if jobs != [replace(job, speedup=None) for job in lists[seed]]:
            raise input_error(path, f"the jobs of seed {seed} cannot be frozen", "they have fields of other kinds")
    return digest


@cache
def read_lists(league: str, contest: str, digest: str) -> Lists:
    """Read the frozen lists of a contest; raises `InputError` unless they have the declared digest."""
    path = lists_file(league, contest)
    text = read_text(path)
    found = hashlib.sha256(text.encode()).hexdigest()
    if found != digest:
        raise input_error(path, f"has the digest {found[:16]}, and the league declares {digest[:16]}",
                          "restore the file that came with the league")  # fmt: skip
    content: dict[str, Any] = parse_json(text, path)["seeds"]
    return {int(seed): _jobs(one["jobs"], one["columns"]) for seed, one in content.items()}


def _plain(jobs: Sequence[JobSpec]) -> dict[str, list[Any]]:
    return {name: values for name, values in JobSpec.columns_of(jobs).items() if name not in _DERIVED}


def _jobs(number: int, columns: Mapping[str, list[Any]]) -> list[JobSpec]:
    read = {"id": [f"job-{place}" for place in range(number)], **columns}
    if "shape" in read:
        read["shape"] = [None if one is None else _shape(*one) for one in read["shape"]]
    return JobSpec.of_columns(number, read)


def _shape(nodes: int, each: Sequence[int], types: Sequence[str] | None, *rest: Any) -> NodeShape:
    return NodeShape(nodes, Amount(*each), None if types is None else tuple(types), *rest)


def shipped_results(spec: LeagueSpec, division: str) -> Path | None:
    """Return the shipped results of a division; None if there are none."""
    path = data_folder("leagues") / "results" / f"{spec.name}-{division}.json.gz"
    return path if path.is_file() else None


def unable(rows: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Return why rows cannot take part anywhere, by label: their policies have no working parameters."""
    found: dict[str, str] = {}
    for row in rows:
        if registry.POLICIES.is_foreign(row["name"]):
            continue  # loaded in a separate process
        try:
            check_experiment(yaml_lines.parse(json.dumps({"name": "league", "policies": [row]}), "league"))
        except InputError as error:
            found[str(row.get("label") or row["name"])] = reason_of(error.problems)
    return found


def reason_of(problems: Sequence[Problem]) -> str:
    """Return one line on why something cannot run."""
    return problems[0].message


@cache
def _deciding() -> str:
    """Return a digest of the code of simsched that decides what a policy's cells hold."""
    home = Path(__file__).resolve().parent.parent
    return digest_of(tuple(content_of(home / room, "*.py") for room in _DECIDE))


def code_of(policy_source: Mapping[str, str]) -> str:
    """Return a digest of the code that decides: the engine's with what it uses, and the policy's, by module."""
    return digest_of((_deciding(), sorted(policy_source.items())))[:16]


def code_now(policy: str) -> str:
    """Return what `code_of` gives for a cell of this policy now; empty for a policy that does not ship."""
    return code_of(plugin_code(registry.load(policy)).modules) if registry.POLICIES.is_shipped(policy) else ""


class LeagueEntry(Section):
    """A submission: a policy's file beside it with its digest, its division, and the digest of its cells."""

    format: Literal["simsched-league-entry/1"]
    league: str
    division: str
    policy: str = Field(description="FILE.py:Class, beside this file")
    params: dict[str, Any] = Field(default_factory=dict)
    sha256: str
    seeds: int = Field(ge=2)
    cells: str = ""


@dataclass(frozen=True)
class Submission:
    """An entry and the row that plays it."""

    path: Path
    entry: LeagueEntry
    row: Mapping[str, Any]

    def with_cells(self, digest: str) -> None:
        """Write the digest of its cells into a submission that has none."""
        text = self.path.read_text(encoding="utf-8").rstrip("\n")
        write_text(self.path, f"{text}\ncells: {digest}\n")


def read_entry(path: Path) -> Submission:
    """Read a submission; raises `InputError` unless its policy's file has the digest that it declares."""
    entry = read_section(path, LeagueEntry)
    file, _, name = entry.policy.rpartition(":")
    place = path.parent / file
    if not place.is_file():
        raise input_error(path, f"policy: there is no file '{file}' beside it", "name FILE.py:Class")
    found = hashlib.sha256(place.read_bytes()).hexdigest()
    if found != entry.sha256:
        raise input_error(path, f"sha256: {file} has the digest {found}", "a changed policy is another entry")
    if entry.params and entry.division != "open":
        raise input_error(path, "params: only the division 'open' has parameters of one's own", "leave them out")
    label = f"{path.stem}"
    return Submission(path, entry, {"name": f"{place.resolve()}:{name}", "label": label, "params": entry.params})
