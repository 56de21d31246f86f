"""Finds unused keys of a workload: those of other recipes, and of the generated trace if it is not used."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields
from types import MappingProxyType

from simsched.documents import Draft
from simsched.errors import Problem
from simsched.experiment.spec import ExperimentSpec
from simsched.workload import GENERATED, RECIPES, GeneratedTrace

#: The keys of each recipe and of the generated trace.
_KEYS: Mapping[str, frozenset[str]] = MappingProxyType(
    {name: frozenset(one.name for one in fields(kind)) for name, kind in RECIPES.items()}  # type: ignore[arg-type]
)
_GENERATED_KEYS = frozenset(one.name for one in fields(GeneratedTrace))
#: Keys that decide which others count; if an option changes one, those in the file may go unused.
_DECIDING = ("recipe", "source", "path")


def idle_keys(draft: Draft, spec: ExperimentSpec) -> Iterator[Problem]:
    """Yield keys without effect under the chosen recipe and source, except those set to their default."""
    for key, remedy in _idle(draft, spec):
        yield draft.problem(("workload", key), "it has no effect here", remedy)


def without_idle(draft: Draft, spec: ExperimentSpec) -> ExperimentSpec:
    """Drop the keys of the file that options made idle, so that a run records, and all can read, what it uses."""
    if any(("workload", key) in draft.origins for key in _DECIDING):
        idle = [key for key, _ in _idle(draft, spec) if ("workload", key) not in draft.origins]
        for key in idle:
            del draft.data["workload"][key]
        usual = type(spec.workload)()
        workload = spec.workload.model_copy(update={key: getattr(usual, key) for key in idle})
        spec = spec.model_copy(update={"workload": workload})
    return spec


def _idle(draft: Draft, spec: ExperimentSpec) -> Iterator[tuple[str, str]]:
    given = draft.data.get("workload")
    if not isinstance(given, dict) or not _is_one_workload(draft, spec):
        return
    usual = type(spec.workload)()
    for key in given:
        remedy = _remedy(key, spec)
        if remedy and getattr(spec.workload, key) != getattr(usual, key):
            yield key, remedy


def _is_one_workload(draft: Draft, spec: ExperimentSpec) -> bool:
    """Return whether recipe and source are known and the same throughout the grid."""
    swept = (str(key).rpartition(".")[2] for key in draft.data.get("sweep") or {})
    if any(key in _DECIDING for key in swept) or any(policy.workload for policy in spec.policies):
        return False
    return spec.workload.recipe is not None or spec.workload.file is None


def _remedy(key: str, spec: ExperimentSpec) -> str:
    recipe = spec.workload.recipe or "pollux"
    owners = [name for name, keys in _KEYS.items() if key in keys]
    if owners and recipe not in owners:
        return f"it is a key of the recipe {' or '.join(owners)}, not of {recipe}; leave it out"
    if key in _GENERATED_KEYS and (spec.workload.file is not None or spec.workload.source != GENERATED):
        return f"it is a key of the source {GENERATED}; leave it out"
    return ""
