"""The declaration of a league: workloads and conditions that are fixed before any policy runs on them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from simsched.documents import Document, Section, draft_of, read_section, yaml_lines
from simsched.engine import SEMANTICS
from simsched.errors import InputError, Problem, input_error, nearest
from simsched.experiment.task import digest_of
from simsched.experiment.validation import check_experiment
from simsched.paths import data_folder
from simsched.policy import registry
from simsched.sources import code, plugin_code

Name = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9.-]*$", max_length=40)]
#: Dotted keys of an experiment and their values.
Keys = dict[str, Any]


class LeagueWorkload(Section):
    """The jobs of some contests; jobs from `data` (a file, or a pattern for several) need a folder that holds it.

    `keys` are other keys of an experiment that these jobs need, `only` the conditions that apply to them (all, if
    empty), and `without` the excluded conditions with the reasons.
    """

    about: str = Field(min_length=1)
    workload: Keys = Field(default_factory=dict)
    data: str = ""
    keys: Keys = Field(default_factory=dict)
    only: list[str] = Field(default_factory=list)
    without: dict[str, str] = Field(default_factory=dict)


class LeagueRow(Section):
    """A policy with parameters that takes part in addition to those with their defaults."""

    name: str
    label: str
    params: dict[str, Any] = Field(default_factory=dict)


class TunedRow(Section):
    """A policy with the best parameters of a grid."""

    name: str
    label: str
    grid: dict[str, list[Any]] = Field(min_length=1)

    def candidates(self) -> list[dict[str, Any]]:
        """Return the rows of the grid, each labelled by its parameters."""
        points = [dict(zip(self.grid, values, strict=True)) for values in product(*self.grid.values())]
        return [{"name": self.name, "label": f"{self.label} {json.dumps(one)}", "params": one} for one in points]


class Tuning(Section):
    """Rows to tune before a league is played, on seeds other than the league's.

    Each row gets the parameters of its grid with the least geometric mean of mean JCTs, over the workloads that all of
    its candidates ran under the usual condition.
    """

    seeds: list[int] = Field(min_length=2, max_length=100)
    rows: list[TunedRow] = Field(min_length=1)


class Division(Section):
    """A part of a league that can be played alone: some workloads, each under some of the conditions.

    `instead` has keys that replace the league's.
    """

    about: str = Field(min_length=1)
    seeds: int = Field(ge=2, le=1000)
    contests: dict[str, list[str]] = Field(min_length=1)
    instead: Keys = Field(default_factory=dict)


class LeagueSpec(Section):
    """A league: each workload under each condition is a contest; the first condition is the usual one."""

    format: Literal["simsched-league/1"]
    name: Name
    description: str = ""
    seeds: int = Field(ge=2, le=1000)
    usual: Keys = Field(default_factory=dict)
    workloads: dict[Name, LeagueWorkload] = Field(min_length=1)
    conditions: dict[Name, Keys] = Field(min_length=1)
    rows: list[LeagueRow] = Field(default_factory=list)
    tuning: Tuning | None = None
    divisions: dict[Name, Division] = Field(default_factory=dict)


@dataclass(frozen=True)
class Contest:
    """One workload under one condition: an experiment without policies, or why its jobs are not available."""

    workload: str
    condition: str
    about: str
    keys: Mapping[str, Any]
    missing: str = ""

    @property
    def name(self) -> str:
        """Name the contest, and the folder of its run."""
        return f"{self.workload}.{self.condition}"

    def document(self, policies: Sequence[Mapping[str, Any]], seeds: Sequence[int], league: str) -> Document:
        """Return its experiment with these policies and seeds."""
        begun = {"name": f"{league}.{self.name}", "policies": list(policies), "seeds": list(seeds)}
        text = json.dumps(begun | {"report": {"plots": False}})
        draft = draft_of(yaml_lines.parse(text, f"{league}, {self.name}"), ())
        for key, value in self.keys.items():
            draft.set(key, value, league)
        return replace(draft.document, data=draft.data)


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


def read_league(name: str, division: str = "") -> LeagueSpec:
    """Read a league, or a division of it; raises `InputError` with every problem."""
    path = find_league(name)
    spec = read_section(path, LeagueSpec)
    _check_tuning(path, spec)
    if not division:
        return spec
    if division not in spec.divisions:
        raise input_error(path, f"does not declare a division '{division}'", nearest(division, spec.divisions))
    few = spec.divisions[division]
    for workload, conditions in few.contests.items():
        where = f"divisions.{division}.contests"
        for one, known in ((workload, spec.workloads.keys()), *((one, spec.conditions.keys()) for one in conditions)):
            if one not in known:
                raise input_error(path, f"{where}: there is no '{one}'", nearest(one, known))
    part: dict[str, Any] = {
        "name": f"{spec.name}-{division}",
        "description": f"{few.about} {spec.description}".strip(),
        "seeds": few.seeds,
        "workloads": {
            name: one.model_copy(update={"only": conditions, "keys": {**one.keys, **few.instead}})
            for name, conditions in few.contests.items()
            for one in (spec.workloads[name],)
        },
        "divisions": {},
    }
    return spec.model_copy(update=part)


def _check_tuning(path: Path, spec: LeagueSpec) -> None:
    most = max([spec.seeds, *(one.seeds for one in spec.divisions.values())])
    shared = [] if spec.tuning is None else [seed for seed in spec.tuning.seeds if seed <= most]
    if shared:
        message = f"tuning.seeds: {shared[0]} is a seed of the league itself"
        raise input_error(path, message, f"tune on seeds above {most}")


def digest_of_league(spec: LeagueSpec) -> str:
    """Return the digest of a league's declaration and the simulator's code; equal digests may be joined."""
    return digest_of((SEMANTICS, spec.model_dump(exclude={"description", "rows", "tuning", "divisions"})))[:16]


def contests(spec: LeagueSpec, data: Path | None = None) -> Iterator[Contest]:
    """Yield the contests in order; a contest without its data below the folder `data` says so."""
    for name, one in spec.workloads.items():
        for label, path, missing in _places(name, one, data):
            for condition in one.only or spec.conditions:
                keys = spec.conditions[condition]
                at = {"workload.path": str(path)} if path else {}
                own = {f"workload.{key}": value for key, value in one.workload.items()}
                why = missing or one.without.get(condition, "")
                yield Contest(
                    label, condition, one.about, {**_dotted(spec.usual), **own, **one.keys, **at, **keys}, why
                )


def _places(name: str, one: LeagueWorkload, data: Path | None) -> Iterator[tuple[str, Path | None, str]]:
    """Yield the name, the file and any problem of each workload in a declaration."""
    if not one.data:
        yield name, None, ""
        return
    found = sorted(data.glob(one.data)) if data is not None else []
    if not found:
        yield name, None, f"{one.data} is not available: name the folder that holds it with --data"
    for path in found:
        yield (name if len(found) == 1 else f"{name}-{path.stem}"), path.resolve(), ""


def _dotted(keys: Mapping[str, Any]) -> dict[str, Any]:
    """Return keys with those of the section `workload` separate, so that a workload can add its own."""
    own = keys.get("workload")
    rest = {key: value for key, value in keys.items() if key != "workload"}
    return rest | ({f"workload.{key}": value for key, value in own.items()} if isinstance(own, dict) else {})


def shipped_results(spec: LeagueSpec) -> Path | None:
    """Return the shipped results of a league or a division; None if there are none."""
    path = data_folder("leagues") / "results" / f"{spec.name}.json.gz"
    return path if path.is_file() else None


@dataclass(frozen=True)
class Entrants:
    """The policies of a league as rows of its experiments, and those that cannot take part with the reasons."""

    rows: tuple[Mapping[str, Any], ...]
    unable: Mapping[str, str]


def entrants(
    spec: LeagueSpec, policies: Sequence[str] | None = None, tuned: Sequence[Mapping[str, Any]] = ()
) -> Entrants:
    """Return every shipped policy with its defaults, and the league's extra and `tuned` rows; or only `policies`.

    A policy without working defaults is named with the reason.
    """
    names = [name for name in registry.names() if registry.POLICIES.is_shipped(name)] if policies is None else policies
    rows: list[Mapping[str, Any]] = [{"name": name} for name in names]
    if policies is None:
        rows += [*(row.model_dump() for row in spec.rows), *tuned]
    unable: dict[str, str] = {}
    for row in rows:
        if registry.POLICIES.is_foreign(row["name"]):
            continue  # loaded in a separate process
        try:
            check_experiment(yaml_lines.parse(json.dumps({"name": "league", "policies": [row]}), "league"))
        except InputError as error:
            unable[str(row.get("label", row["name"]))] = reason_of(error.problems)
    able = tuple(row for row in rows if row.get("label", row["name"]) not in unable)
    return Entrants(able, unable)


def reason_of(problems: Sequence[Problem]) -> str:
    """Return one line on why something cannot run."""
    return problems[0].message


def code_of(manifest: Mapping[str, Any]) -> str:
    """Return a digest of the code behind a cell from its manifest: the simulator's and its policy's."""
    return digest_of((str(manifest["code_hash"]), sorted(manifest["policy_source"].items())))[:16]


def code_now(policy: str) -> str:
    """Return what `code_of` would give for a new cell of this policy; empty for a policy that does not ship."""
    if not registry.POLICIES.is_shipped(policy):
        return ""
    added = plugin_code(registry.load(policy)).modules
    return code_of({"code_hash": code().digest, "policy_source": added})
