"""What a run was of, derived from its cells and the settings that were changed, and how to make it again."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from simsched.words import counted

#: Sections of an experiment whose change makes published values those of something else.
_COMPARED = ("workload", "cluster", "engine", "policies", "applications", "tuning")


@dataclass(frozen=True)
class Reproduction:
    """What makes a run again: a command, and the text of the experiment file that it reads unless that is shipped."""

    command: str
    file_name: str = ""
    file: str = ""


class ListedCell(Protocol):
    """What is asked of a cell here."""

    @property
    def seed(self) -> int:
        """Return its seed."""

    @property
    def policy(self) -> str:
        """Return the label of its policy."""

    @property
    def own(self) -> Mapping[str, Any]:
        """Return the conditions that its policy alone is under, by dotted key."""

    @property
    def manifest(self) -> Mapping[str, Any]:
        """Return its manifest."""


def published_values_hold(changed: Iterable[str]) -> bool:
    """Return whether published values apply to a run with these `key=value` changes.

    They do not if workload, cluster, engine, applications or policies differ from those they were published for.
    """
    keys = [change.partition("=")[0].strip() for change in changed]
    return not any(key.split(".")[0] in _COMPARED for key in keys)


def what_was_run(cells: Sequence[ListedCell], changed: Sequence[str] = ()) -> str:
    """Say in a line what was run: `80 jobs, 2 seeds, 3 policies on 64 GPUs; changed: workload.jobs=80`.

    Conditions of one policy alone are named: `... on 64 GPUs; gandiva alone with engine.restart_delay_s=1`. Of replays
    and of lists of jobs it tells whether they are whole, and what of them was left out.
    """
    jobs = sorted({int(cell.manifest["jobs"]) for cell in cells if isinstance(cell.manifest.get("jobs"), int)})
    seeds = sorted({cell.seed for cell in cells})
    policies = dict.fromkeys(cell.policy for cell in cells)
    gpus = sorted({_gpus(cell.manifest.get("cluster")) for cell in cells} - {0})
    parts = [_range(jobs, "job"), counted(len(seeds), "seed"), counted(len(policies), "policy", "policies")]
    said = ", ".join(part for part in parts if part) + (f" on {_range(gpus, 'GPU')}" if gpus else "")
    said += _own([(cell.policy, cell.own) for cell in cells])
    said += _left_out([cell.manifest.get("left_out") for cell in cells])
    return f"{said}; changed: {', '.join(changed)}" if changed else said


def _own(conditions: Iterable[tuple[str, Mapping[str, Any]]]) -> str:
    """Say which policies were run under conditions of their own."""
    values: dict[str, dict[str, dict[str, None]]] = {}
    for policy, own in conditions:
        for key, value in own.items():
            values.setdefault(policy, {}).setdefault(key, {})[f"{value}"] = None
    labels: dict[str, list[str]] = {}
    for policy, found in values.items():
        settings = ", ".join(f"{key}={' or '.join(given)}" for key, given in found.items())
        labels.setdefault(settings, []).append(policy)
    return "".join(f"; {' and '.join(who)} alone with {settings}" for settings, who in labels.items())


def what_policies_become(told: Iterable[tuple[str, Mapping[str, str]]]) -> list[str]:
    """Say, a sentence each, what policies become in a run without the physics that they count on.

    `told` has, for each cell, the label of its policy and what its manifest says under `without`.
    """
    labels: dict[str, dict[str, None]] = {}
    for label, without in told:
        for sentence in without.values():
            labels.setdefault(sentence, {})[label] = None
    return [f"{', '.join(who)}: {sentence}." for sentence, who in labels.items()]


def _left_out(told: Sequence[object]) -> str:
    """Say what the cells of a replay left out of their traces, by reason."""
    counts = [one for one in told if isinstance(one, Mapping)]
    if not counts or len(counts) < len(told):
        return ""
    reasons = dict.fromkeys(reason for one in counts for reason in one)
    if not reasons:
        return ", nothing left out"
    spans = {reason: sorted({int(one.get(reason, 0)) for one in counts}) for reason in reasons}
    return "; left out: " + ", ".join(f"{_range(span, 'job')} {reason}" for reason, span in spans.items())


def _range(counts: Sequence[int], noun: str) -> str:
    if not counts:
        return ""
    if len(counts) == 1:
        return counted(counts[0], noun)
    return f"{counts[0]:,} to {counts[-1]:,} {noun}s"


def _gpus(groups: object) -> int:
    known = [group for group in groups if isinstance(group, Mapping)] if isinstance(groups, list) else []
    return sum(int(group.get("nodes", 0)) * int(group.get("gpus_per_node", 0)) for group in known)
