"""Describes a run from its cells and changed settings, and how to repeat it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from simsched.words import counted, duration

if TYPE_CHECKING:
    from simsched.results.reader import Cell

#: The metrics in which indistinguishable policies agree, and the wait among them.
_TIMES, _WAIT = ("jct_", "queueing_", "makespan_"), "queueing_mean_s"
_HOUR_S = 3600


@dataclass(frozen=True)
class Reproduction:
    """How to repeat a run: a command, and the text of its experiment file unless that is shipped."""

    command: str
    file_name: str = ""
    file: str = ""


def what_was_run(cells: Sequence[Cell], changed: Sequence[str] = ()) -> str:
    """Describe a run in one line: `80 jobs, 2 seeds, 3 policies on 64 GPUs; changed: workload.jobs=80`.

    It names the enabled and disabled physics, `restart delay 30 s, no failures`, the release whose rules a policy
    follows, with its timing, and conditions of one policy alone,
    `gandiva alone with engine.restart_delay_s=1`; whether replays and lists of jobs are complete, and what was left
    out.
    """
    jobs = sorted({int(cell.manifest["jobs"]) for cell in cells if isinstance(cell.manifest.get("jobs"), int)})
    seeds = sorted({cell.seed for cell in cells})
    policies = dict.fromkeys(cell.policy for cell in cells)
    gpus = sorted({_gpus(cell.manifest.get("cluster")) for cell in cells} - {0})
    parts = [_range(jobs, "job"), counted(len(seeds), "seed"), counted(len(policies), "policy", "policies")]
    said = ", ".join(part for part in parts if part) + (f" on {_range(gpus, 'GPU')}" if gpus else "")
    said += _offered([cell.manifest.get("offered_load") for cell in cells])
    physics = physics_of([cell.manifest for cell in cells])
    said += f"; {physics}" if physics else ""
    follows = dict.fromkeys(str(one) for cell in cells if (one := cell.manifest.get("policy_follows")))
    said += "".join(f"; rules of {one}" for one in follows)
    said += _own([(cell.policy, cell.own) for cell in cells])
    said += _left_out([cell.manifest.get("left_out") for cell in cells])
    return f"{said}; changed: {', '.join(changed)}" if changed else said


def who_cannot_differ(cells: Iterable[Cell]) -> list[str]:
    """List, as sentences, the policies with equal completion times and waits under every seed at a point of the sweep.

    Also states whether no job ever waited, so that there was nothing to schedule.
    """
    at_point: dict[str, dict[str, list[tuple[Any, ...]]]] = {}
    for cell in cells:
        point = ", ".join(f"{key.rpartition('.')[2]}={value}" for key, value in cell.point.items())
        times = {key: value for key, value in sorted(cell.summary.items()) if key.startswith(_TIMES)}
        at_point.setdefault(point, {}).setdefault(cell.policy, []).append((cell.seed, times))
    said: dict[str, list[str]] = {}
    for point, by_policy in at_point.items():
        alike: dict[str, list[str]] = {}
        for policy, found in by_policy.items():
            if all(times for _, times in found):
                alike.setdefault(repr(sorted(found, key=repr)), []).append(policy)
        for same in (labels for labels in alike.values() if len(labels) > 1):
            waits = any(times.get(_WAIT, 1) for _, times in by_policy[same[0]])
            why = "" if waits else ", as no job ever waited"
            said.setdefault(f"{', '.join(same)}: the same times for every seed{why}", []).append(point)
    return [f"{one}{_at(points)}." for one, points in said.items()]


def _at(points: Sequence[str]) -> str:
    return f" (at {'; '.join(points)})" if any(points) else ""


def _offered(loads: Sequence[object]) -> str:
    """Describe the offered load, if known for all cells."""
    known = sorted(load for load in loads if isinstance(load, int | float))
    if not known or len(known) < len(loads):
        return ""
    least, most = f"{known[0]:.2f}", f"{known[-1]:.2f}"
    return f", offered load {least}" + (f" to {most}" if most != least else "")


def physics_of(manifests: Sequence[Mapping[str, Any]]) -> str:
    """Describe the physics of runs: `t4, restart delay 30 s, no failures, no sharing, no contention`.

    Differing values are joined by `or`; "" if a manifest lacks them.
    """
    engines = [manifest.get("engine") or {} for manifest in manifests]
    if not engines or not all("restart_delay_s" in engine for engine in engines):
        return ""
    said = [[" and ".join(_types(manifest.get("cluster"))) for manifest in manifests]]
    delays = sorted({float(engine["restart_delay_s"]) for engine in engines})
    said.append([f"restart delay {' or '.join(map(duration, delays))}"])
    said += [[how(manifest) or f"no {name}" for manifest in manifests] for name, how in _PHYSICS.items()]
    return ", ".join(filter(None, (" or ".join(dict.fromkeys(words)) for words in said)))


def _own(conditions: Iterable[tuple[str, Mapping[str, Any]]]) -> str:
    """List the policies that ran under specific conditions."""
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
    """Describe, one sentence each, what policies reduce to in a run without the physics that they rely on.

    `told` has, for each cell, the label of its policy and the entry `without` of its manifest.
    """
    labels: dict[str, dict[str, None]] = {}
    for label, without in told:
        for sentence in without.values():
            labels.setdefault(sentence, {})[label] = None
    return [f"{', '.join(who)}: {sentence}." for sentence, who in labels.items()]


def _left_out(told: Sequence[object]) -> str:
    """List what the cells of a replay left out of their traces, by reason."""
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


def _types(groups: object) -> list[str]:
    known = groups if isinstance(groups, list) else []
    return sorted({str(group["gpu_type"]) for group in known if "gpu_type" in group})


def _failures(manifest: Mapping[str, Any]) -> str:
    """Describe what fails and how often, and which processes may stop nodes."""
    told = manifest.get("failures") or {}
    said = [f"each {noun} fails every {told[key] / _HOUR_S:g} h" for key, noun in _FAILING.items() if told.get(key)]
    said += [counted(told["listed_outages"], "listed outage")] if told.get("listed_outages") else []
    said += ["a market reclaims nodes"] if manifest.get("market") else []
    said += [f"jobs fail as in {told['jobs']}"] if told.get("jobs", "never") != "never" else []
    said += [f"{100 * told['slow_nodes']:g} % of the nodes are slow"] if told.get("slow_nodes") else []
    said += dict.fromkeys(f"the process {one['class']}" for one in manifest.get("processes", ()))
    return " and ".join(said)


def _sharing(manifest: Mapping[str, Any]) -> str:
    """Describe how many jobs may share a GPU, and by which model."""
    most, told = manifest["engine"].get("max_jobs_per_gpu", 1), manifest.get("sharing") or {}
    model = f" ({told['model']})" if "model" in told else ""
    return f"up to {most} jobs on a GPU{model}" if most > 1 else ""


def _contention(manifest: Mapping[str, Any]) -> str:
    return "contention for uplinks" if manifest["engine"].get("contention") else ""


def _interference(manifest: Mapping[str, Any]) -> str:
    share = manifest["engine"].get("interference", 0)
    return f"{100 * share:g} % interference" if share else ""


#: What fails, by the manifest key of its mean seconds between failures.
_FAILING = {"node_mtbf_s": "node", "gpu_mtbf_s": "GPU", "rack_mtbf_s": "rack"}
#: Optional physics besides restarts: how a manifest describes it, "" if it is off.
_PHYSICS: Mapping[str, Callable[[Mapping[str, Any]], str]] = {
    "failures": _failures,
    "sharing": _sharing,
    "contention": _contention,
    "interference": _interference,
}
