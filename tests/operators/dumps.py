"""Clusters of Kubernetes that run under known rules, and their objects at a moment, as `kubectl get` prints them.

`python -m tests.operators.dumps` forecasts many of them and prints how many starts fell within the intervals.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click
import numpy as np

from simsched.operators.admit import forecast_moment, moment_of
from simsched.operators.dump import Durations, read_dump

#: 2026-01-01, from which the seconds of these clusters count.
ZERO_S = 1767225600
KUEUE = "kueue.x-k8s.io/v1beta1"


def stamp(second: float) -> str:
    """Return a second of a cluster as Kubernetes writes moments."""
    return str(np.datetime64(round(ZERO_S + second), "s")) + "Z"


def node(name: str, gpus: int = 8, **more: Any) -> dict[str, Any]:
    """Return a node; `more` are keys of its spec."""
    amounts = {"cpu": "96", "memory": "1Ti", "nvidia.com/gpu": str(gpus), "pods": "110"}
    labels = {"kubernetes.io/hostname": name, "rack": f"rack-{name[-1]}", "gpu": "a100"}
    metadata = {"name": name, "labels": labels}
    return {"apiVersion": "v1", "kind": "Node", "spec": more, "metadata": metadata, "status": {"allocatable": amounts}}


def queue(name: str, gpus: int, cohort: str = "", **spec: Any) -> list[dict[str, Any]]:
    """Return a cluster queue with quota, and the local queue `gpu` of the namespace of its name."""
    group = {"coveredResources": ["nvidia.com/gpu"], "flavors": [
        {"name": "a100", "resources": [{"name": "nvidia.com/gpu", "nominalQuota": str(gpus)}]}]}  # fmt: skip
    full = {"namespaceSelector": {}, "resourceGroups": [group], **({"cohort": cohort} if cohort else {}), **spec}
    return [
        {"apiVersion": KUEUE, "kind": "ClusterQueue", "metadata": {"name": name}, "spec": full},
        {"apiVersion": KUEUE, "kind": "LocalQueue", "metadata": {"name": "gpu", "namespace": name}, "spec": {
            "clusterQueue": name}},
    ]  # fmt: skip


def flavour(topology: bool = True) -> list[dict[str, Any]]:
    """Return the flavor of all nodes, with racks and hosts as its topology, and two priorities."""
    spec = {"nodeLabels": {"gpu": "a100"}, **({"topologyName": "racks"} if topology else {})}
    levels = [{"nodeLabel": "rack"}, {"nodeLabel": "kubernetes.io/hostname"}]
    return [
        {"apiVersion": KUEUE, "kind": "ResourceFlavor", "metadata": {"name": "a100"}, "spec": spec},
        {"apiVersion": KUEUE, "kind": "Topology", "metadata": {"name": "racks"}, "spec": {"levels": levels}},
        {"apiVersion": KUEUE, "kind": "WorkloadPriorityClass", "metadata": {"name": "urgent"}, "value": 100},
    ]


def job(
    name: str,
    namespace: str,
    gpus: int,
    *,
    created_s: float = 0,
    pods: int = 1,
    image: str = "train",
    urgent: bool = False,
) -> dict[str, Any]:
    """Return a job of `pods` pods with `gpus` GPUs each."""
    labels = {"kueue.x-k8s.io/queue-name": "gpu", **({"kueue.x-k8s.io/priority-class": "urgent"} if urgent else {})}
    asked = {"limits": {"nvidia.com/gpu": str(gpus)}, "requests": {"nvidia.com/gpu": str(gpus)}}
    template = {"metadata": {"annotations": {"kueue.x-k8s.io/podset-preferred-topology": "rack"}}, "spec": {
        "restartPolicy": "Never", "containers": [{"name": "main", "image": image, "resources": asked}]}}  # fmt: skip
    return {
        "apiVersion": "batch/v1", "kind": "Job", "spec": {"suspend": True, "parallelism": pods, "completions": pods,
        "template": template}, "metadata": {"name": name, "namespace": namespace, "labels": labels,
        "creationTimestamp": stamp(created_s)},
    }  # fmt: skip


def workload(
    one: Mapping[str, Any], hosts: Mapping[str, int] | None, since_s: float = 0, *, topology: bool = True
) -> dict[str, Any]:
    """Return the `Workload` of a job, with its GPUs on hosts; None: it waits, and was tried."""
    own, spec = one["metadata"], one["spec"]
    each = int(spec["template"]["spec"]["containers"][0]["resources"]["requests"]["nvidia.com/gpu"])
    owner = {"kind": "Job", "name": own["name"], "controller": True}
    metadata = {key: own[key] for key in ("namespace", "creationTimestamp")}
    metadata |= {"name": f"job-{own['name']}", "ownerReferences": [owner]}
    status: dict[str, Any] = {"conditions": [{"type": "QuotaReserved", "status": "False"}]}
    if hosts is not None:
        domains = [{"values": [host], "count": gpus // each} for host, gpus in hosts.items()]
        places = {"levels": ["kubernetes.io/hostname"], "domains": domains}
        total = str(each * spec["parallelism"])
        grant = {"name": "main", "count": spec["parallelism"], "flavors": {"nvidia.com/gpu": "a100"},
                 "resourceUsage": {"nvidia.com/gpu": total},
                 **({"topologyAssignment": places} if topology else {})}  # fmt: skip
        at = {"status": "True", "lastTransitionTime": stamp(since_s)}
        status = {"admission": {"clusterQueue": own["namespace"], "podSetAssignments": [grant]},
                  "conditions": [{"type": "QuotaReserved", **at}, {"type": "Admitted", **at}]}  # fmt: skip
    return {"apiVersion": KUEUE, "kind": "Workload", "metadata": metadata, "spec": {}, "status": status}


def written(folder: Path, objects: Sequence[Mapping[str, Any]], name: str = "objects") -> Path:
    """Write objects as a JSON list into a folder, and return the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.json").write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": list(objects)}))
    return folder


@dataclass
class World:
    """A cluster whose jobs and durations are known: what came, when it started and when it ended, in seconds."""

    fixed: list[dict[str, Any]]
    jobs: dict[str, dict[str, Any]]
    lasts_s: dict[str, float]
    comes_s: dict[str, float]
    starts_s: dict[str, float] = field(default_factory=dict)
    ends_s: dict[str, float] = field(default_factory=dict)
    hosts: dict[str, dict[str, int]] = field(default_factory=dict)

    @classmethod
    def drawn(cls, seed: int, *, jobs: int, nodes: int, load: float, sigma: float = 1.0) -> World:
        """Draw users with jobs of a few images, whose durations are lognormal, at a load of the cluster's GPUs."""
        rng = np.random.default_rng(seed)
        teams = [f"team-{letter}" for letter in "abc"]
        fixed = [*(node(f"node-{place:02d}") for place in range(nodes)), *flavour()]
        for team in teams:
            fixed += queue(team, 8 * nodes // len(teams), "all", queueingStrategy="BestEffortFIFO")
        medians = {(team, image): float(rng.uniform(900, 9000)) for team in teams for image in ("train", "tune")}
        made, lasts, comes, at = {}, {}, {}, 0.0
        sizes = rng.choice([1, 2, 4, 8], jobs, p=[0.4, 0.2, 0.2, 0.2])
        mean = float(np.mean(list(medians.values()))) * float(np.exp(sigma**2 / 2)) * float(sizes.mean())
        for place in range(jobs):
            at += float(rng.exponential(mean / (load * 8 * nodes)))
            team, image = teams[int(rng.integers(len(teams)))], ("train", "tune")[int(rng.integers(2))]
            name = f"job-{place:04d}"
            made[f"{team}/{name}"] = job(name, team, int(sizes[place]), created_s=round(at), image=image)
            comes[f"{team}/{name}"] = float(round(at))
            seconds = medians[team, image] * float(np.exp(sigma * rng.standard_normal()))
            lasts[f"{team}/{name}"] = max(60.0, round(seconds))
        return cls(fixed, made, lasts, comes)

    def run(self, folder: Path) -> None:
        """Run all jobs under Kueue's rules from an empty cluster."""
        for names, one in self._decisions(folder):
            for name in names:
                held = {self.fixed[place]["metadata"]["name"]: gpus for place, gpus in one.jobs[name].allocation}
                self.starts_s[name], self.hosts[name] = one.now_s, held
                self.ends_s[name] = one.now_s + self.lasts_s[name]

    def _decisions(self, folder: Path) -> Iterator[tuple[list[str], Any]]:
        path = written(folder / "all", [*self.fixed, *self.jobs.values()])
        dump = read_dump(path, now_s=ZERO_S)
        moment = moment_of(dump)
        waiting = {one.workload.id: one for one in moment.standing}
        simulation, policy = moment.begin(self.lasts_s, self.comes_s)
        while (view := simulation.advance()) is not None:
            simulation.act(policy.decide(view, simulation.rng))
            begun = [name for name, one in view.jobs.items() if one.running and name in waiting]
            for name in begun:
                del waiting[name]
            yield begun, view

    def objects(self, second: float) -> list[dict[str, Any]]:
        """Return the objects of the cluster at a second."""
        found = [*self.fixed]
        for name, one in self.jobs.items():
            if self.comes_s[name] > second:
                continue
            start, end = self.starts_s[name], self.ends_s[name]
            if end <= second:
                found.append({**one, "status": {"startTime": stamp(start), "completionTime": stamp(end)}})
                continue
            runs = start <= second
            found += [one, workload(one, self.hosts[name] if runs else None, start)]
        return found

    def waiting(self, second: float) -> list[str]:
        """Return the jobs that wait at a second."""
        return [name for name, at in self.comes_s.items() if at <= second < self.starts_s[name]]


def forecast(world: World, second: float, folder: Path, draws: int) -> list[tuple[float, float, float, float]]:
    """Return for each job that waits at a second its start, and the forecast: median, low and high."""
    dump = read_dump(written(folder, world.objects(second)), now_s=ZERO_S + second)
    moment = moment_of(dump, future=True)
    whens = {one.workload: one for one in forecast_moment(moment, Durations.of(dump.past), draws=draws)}
    return [
        (world.starts_s[name] - second, whens[name].median_s, whens[name].low_s, whens[name].high_s)
        for name in world.waiting(second)
    ]


def coverage(worlds: Sequence[World], folder: Path, *, moments: int, draws: int) -> list[tuple[int, int, float]]:
    """Return for each world its forecasts, how many starts fell within their intervals, and the median error (h)."""
    found = []
    for place, world in enumerate(worlds):
        world.run(folder / str(place))
        first, last = (float(np.quantile(list(world.comes_s.values()), share)) for share in (0.6, 0.95))
        scored = [
            one
            for number, second in enumerate(np.linspace(first, last, moments).round())
            for one in forecast(world, float(second), folder / str(place) / str(number), draws)
        ]
        inside = sum(low - 60 <= start <= high + 60 for start, _, low, high in scored)
        errors = [abs(middle - start) / 3600 for start, middle, _, _ in scored]
        found.append((len(scored), inside, float(np.median(errors)) if errors else 0.0))
    return found


def main() -> None:
    """Print the coverage of forecasts of drawn clusters."""
    import tempfile

    for load, sigma in ((0.9, 0.5), (0.9, 1.0), (1.3, 0.5), (1.3, 1.0)):
        with tempfile.TemporaryDirectory() as folder:
            worlds = [World.drawn(seed, jobs=300, nodes=6, load=load, sigma=sigma) for seed in range(3)]
            rows = coverage(worlds, Path(folder), moments=4, draws=20)
        total, inside = sum(row[0] for row in rows), sum(row[1] for row in rows)
        error = np.mean([row[2] for row in rows])
        click.echo(f"load {load}, sigma {sigma}: {total} starts, {100 * inside / total:.0f} %, error {error:.2f} h")


if __name__ == "__main__":
    main()
