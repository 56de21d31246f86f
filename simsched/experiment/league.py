"""The declaration of a league: workloads and conditions that are fixed before any policy is run on them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from simsched.documents import Document, Section, draft_of, read_section, yaml_lines
from simsched.engine import SEMANTICS
from simsched.errors import InputError, Problem, input_error, nearest
from simsched.experiment.canonical import digest_of
from simsched.experiment.validation import check_experiment
from simsched.paths import data_folder
from simsched.policy import registry

Name = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9.-]*$", max_length=40)]
#: Dotted keys of an experiment and their values.
Keys = dict[str, Any]


class LeagueWorkload(Section):
    """The jobs of some contests; those of `data` (a file, or a pattern for several) need a folder that holds it.

    `keys` are other keys of an experiment that these jobs need, `without` the conditions that do not go with them, with
    the reasons.
    """

    about: str = Field(min_length=1)
    workload: Keys = Field(default_factory=dict)
    data: str = ""
    keys: Keys = Field(default_factory=dict)
    without: dict[str, str] = Field(default_factory=dict)


class LeagueRow(Section):
    """A policy with parameters that takes part beside those with their defaults."""

    name: str
    label: str
    params: dict[str, Any] = Field(default_factory=dict)


class SmokeSpec(Section):
    """The small league that shows in minutes whether all is well."""

    seeds: int = Field(ge=2, le=100)
    workloads: list[str] = Field(min_length=1)
    conditions: list[str] = Field(min_length=1)
    usual: Keys = Field(default_factory=dict)


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
    smoke: SmokeSpec | None = None


@dataclass(frozen=True)
class Contest:
    """One workload under one condition: an experiment but for its policies, or why its jobs are not at hand."""

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
    """Find a league by the path of its file or, of those that ship, by its name: `league-2026` or `2026`."""
    path = Path(name)
    if path.is_file():
        return path
    shipped = {file.stem: file for file in sorted(data_folder("leagues").glob("*.yaml"))}
    key = name.removeprefix("league-").removeprefix("league/")
    if key not in shipped:
        message = "there is no such file, and no shipped league of that name"
        raise input_error(name, message, nearest(key, shipped))
    return shipped[key]


def read_league(name: str, *, smoke: bool = False) -> LeagueSpec:
    """Read a league, or its smoke league; raises `InputError` with everything that is wrong."""
    path = find_league(name)
    spec = read_section(path, LeagueSpec)
    if not smoke:
        return spec
    if spec.smoke is None:
        raise input_error(path, "declares no smoke league", "run it without --smoke")
    few = spec.smoke
    kept = {"workloads": few.workloads, "conditions": few.conditions}
    for section, names in kept.items():
        for one in names:
            if one not in getattr(spec, section):
                raise input_error(path, f"smoke.{section}: there is no '{one}'", nearest(one, getattr(spec, section)))
    small: dict[str, Any] = {
        section: {one: getattr(spec, section)[one] for one in names} for section, names in kept.items()
    }
    named = {"name": f"{spec.name}-smoke", "seeds": few.seeds, "usual": {**spec.usual, **few.usual}, "smoke": None}
    return spec.model_copy(update=small | named)


def digest_of_league(spec: LeagueSpec) -> str:
    """Return the digest of what a league declares and of what a simulation means: alike in what may be joined."""
    return digest_of((SEMANTICS, spec.model_dump(exclude={"description", "rows", "smoke"})))[:16]


def contests(spec: LeagueSpec, data: Path | None = None) -> Iterator[Contest]:
    """Yield the contests in order; those whose data are not below the folder `data` say so."""
    for name, one in spec.workloads.items():
        for label, path, missing in _places(name, one, data):
            for condition, keys in spec.conditions.items():
                at = {"workload.path": str(path)} if path else {}
                own = {f"workload.{key}": value for key, value in one.workload.items()}
                why = missing or one.without.get(condition, "")
                yield Contest(
                    label, condition, one.about, {**_dotted(spec.usual), **own, **one.keys, **at, **keys}, why
                )


def _places(name: str, one: LeagueWorkload, data: Path | None) -> Iterator[tuple[str, Path | None, str]]:
    """Yield the name, the file and what is wrong with it, of each workload that a declaration stands for."""
    if not one.data:
        yield name, None, ""
        return
    found = sorted(data.glob(one.data)) if data is not None else []
    if not found:
        yield name, None, f"{one.data} is not at hand: name the folder that holds it with --data"
    for path in found:
        yield (name if len(found) == 1 else f"{name}-{path.stem}"), path.resolve(), ""


def _dotted(keys: Mapping[str, Any]) -> dict[str, Any]:
    """Return keys with those of the section `workload` apart, so that a workload's own stand beside them."""
    own = keys.get("workload")
    rest = {key: value for key, value in keys.items() if key != "workload"}
    return rest | ({f"workload.{key}": value for key, value in own.items()} if isinstance(own, dict) else {})


@dataclass(frozen=True)
class Entrants:
    """The policies of a league, as rows of its experiments, and those that cannot take part, with the reasons."""

    rows: tuple[Mapping[str, Any], ...]
    unable: Mapping[str, str]


def entrants(spec: LeagueSpec, policies: Sequence[str] | None = None) -> Entrants:
    """Return every policy that ships, with its defaults, and the league's own rows; or only `policies`.

    One whose parameters have no defaults that do is named with the reason.
    """
    names = [name for name in registry.names() if registry.POLICIES.is_shipped(name)] if policies is None else policies
    rows: list[Mapping[str, Any]] = [{"name": name} for name in names]
    if policies is None:
        rows += [row.model_dump() for row in spec.rows]
    unable: dict[str, str] = {}
    for row in rows:
        if registry.POLICIES.is_foreign(row["name"]):
            continue  # loaded in a process of its own
        try:
            check_experiment(yaml_lines.parse(json.dumps({"name": "league", "policies": [row]}), "league"))
        except InputError as error:
            unable[str(row.get("label", row["name"]))] = reason_of(error.problems)
    able = tuple(row for row in rows if row.get("label", row["name"]) not in unable)
    return Entrants(able, unable)


def reason_of(problems: Sequence[Problem]) -> str:
    """Return in a line why something cannot be run."""
    return problems[0].message
