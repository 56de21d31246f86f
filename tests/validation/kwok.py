"""Measured runs of Kueue on simulated nodes, simulated again: `python -m tests.validation.kwok FILE.json...`.

Each file (its form is described in its folder) becomes manifests and a run under `kueue`, with the release and the five
constants of a control plane that were fitted to two of the measured runs. Prints each metric as measured (mean of the
repeats), as simulated, and the difference; exits with 1 if one is outside its bar or no file was read.
"""

from __future__ import annotations

import argparse
import math
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

from simsched_policies.kubernetes.kueue.policy import Kueue
from simsched_policies.kubernetes.kueue.timing import Timing

import simsched as sim
from simsched.documents import yaml_text
from simsched.errors import InputError, input_error
from simsched.model import NodeShape
from simsched.model.placement import Amount
from simsched.reading import read_json

Json = Mapping[str, Any]
#: Seconds from admission to PodsReady (the rate of gated admissions), and the other delays: source, kwok.md 4.
READY_S = 1.05
TIMING = Timing(start_s=0.1, pods_per_s=20.0, pods_burst=30, eviction_s=0.3, end_s=1.1, restarts=True)
#: The largest deviation of a metric: pods, and shares of the measured mean.
PODS, WAIT, MAKESPAN = 0.5, 0.05, 0.03
_RESOURCES = {"cpu": "cpu", "memory": "memory", "gpu": "nvidia.com/gpu", "pods": "pods"}
_JOB_KEYS = {"queue", "pods", "request_per_pod", "duration_s", "submit_s"}


class Row(NamedTuple):
    """A metric of a scenario; `most` is its largest deviation, None without a bar."""

    metric: str
    measured: float
    simulated: float
    most: float | None = None

    @property
    def off(self) -> bool:
        """Return whether it is outside its bar."""
        return self.most is not None and abs(self.simulated - self.measured) > self.most

    def __str__(self) -> str:
        """Format the metric, both values, their difference in percent, and the verdict."""
        gap = f"{100 * (self.simulated / self.measured - 1):+.1f} %" if self.measured else "-"
        verdict = "no bar" if self.most is None else "OUTSIDE" if self.off else "within"
        return f"  {self.metric:36}{self.measured:10.2f}{self.simulated:12.2f}{gap:>10}  {verdict}"


class Done(NamedTuple):
    """A simulated job: its queue, submission, last start, end, and its pods by node."""

    queue: str
    submit_s: float
    first_s: float
    start_s: float
    end_s: float
    pods: Mapping[int, int]


# Manifests


def _object(kind: str, name: str, version: str, **more: Any) -> dict[str, Any]:
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name}, **more}


def _kueue(kind: str, name: str, spec: Mapping[str, Any]) -> dict[str, Any]:
    return _object(kind, name, "kueue.x-k8s.io/v1beta1", spec=dict(spec))


def _amount(name: str, units: int) -> str:
    return f"{units}m" if name == "cpu" else f"{units}Mi" if name == "memory" else str(units)


def _node(name: str, labels: Json, cpu: int, memory: int, gpus: int, pods: int, *, count: int = 1) -> dict[str, Any]:
    one = _object("Node", name, "v1", status={"allocatable": {
        "cpu": f"{cpu}m", "memory": f"{memory}Mi", "pods": str(pods),
        **({"nvidia.com/gpu": str(gpus)} if gpus else {}),
    }})  # fmt: skip
    one["metadata"] |= {"labels": {"type": "kwok", **labels}, "annotations": {"simsched/count": str(count)}}
    return one


def _configuration(told: Json) -> dict[str, Any]:
    wait = told["wait_for_pods_ready"]
    again = {
        "timestamp": wait.get("requeue_timestamp", "Eviction"),
        "backoffBaseSeconds": wait.get("backoff_base_s", 60),
        "backoffMaxSeconds": wait.get("backoff_max_s", 3600),
    }
    made: dict[str, Any] = _object(
        "Configuration", "config", "config.kueue.x-k8s.io/v1beta1",
        waitForPodsReady={
            "enable": wait["enable"], "timeout": f"{wait['timeout_s']}s", "blockAdmission": wait["block_admission"],
            "requeuingStrategy": again,
        },
    )  # fmt: skip
    if wait["enable"]:
        made["metadata"]["annotations"] = {"simsched/ready-s": str(READY_S)}
    if told.get("fair_sharing"):
        strategies = {"preemptionStrategies": list(told["preemption_strategies"] or ())}
        made["fairSharing"] = {"enable": True, **strategies}
    return made


def _cluster_queue(name: str, queue: Json, told: Json, resources: Sequence[str]) -> dict[str, Any]:
    flavours = []
    for flavour, quotas in queue["flavors"].items():
        amounts = []
        for resource in resources:
            quota = quotas.get(resource, {"nominal": 0})
            limits = {"nominalQuota": "nominal"}
            limits |= {"borrowingLimit": "borrowing_limit", "lendingLimit": "lending_limit"} if queue["cohort"] else {}
            given = {key: quota.get(of) for key, of in limits.items()}
            amounts.append(
                {"name": _RESOURCES[resource]}
                | {key: _amount(resource, units) for key, units in given.items() if units is not None}
            )
        flavours.append({"name": flavour, "resources": amounts})
    spec: dict[str, Any] = {
        "namespaceSelector": {},
        "queueingStrategy": told.get("queueing_strategy") or "BestEffortFIFO",
        "resourceGroups": [{"coveredResources": [_RESOURCES[one] for one in resources], "flavors": flavours}],
    }
    if queue["cohort"]:
        spec["cohort"] = "all"
    if told.get("fair_sharing"):
        spec["fairSharing"] = {"weight": str(queue["weight"])}
    rules = {"reclaim_within_cohort": "reclaimWithinCohort", "within_cluster_queue": "withinClusterQueue"}
    if told.get("preemption"):
        spec["preemption"] = {rules[key]: value for key, value in told["preemption"].items()}
    if told.get("flavor_fungibility"):
        words = told["flavor_fungibility"].removeprefix("v1beta1 ").split(", ")
        spec["flavorFungibility"] = dict(word.split(": ") for word in words)
    return _kueue("ClusterQueue", name, spec)


def _job(name: str, queue: str, pods: int, request: Json, notes: Json) -> dict[str, Any]:
    kinds = {"cpu_milli": "cpu", "memory_mi": "memory", "gpu": "gpu"}
    asked = {_RESOURCES[of]: _amount(of, request[key]) for key, of in kinds.items() if request.get(key)}
    spec = {"containers": [{"name": "main", "resources": {"requests": asked}}]}
    one = _object(
        "Job", name, "batch/v1", spec={"parallelism": pods, "completions": pods, "template": {
            "metadata": {"annotations": dict(notes)}, "spec": spec,
        }},
    )  # fmt: skip
    one["metadata"] |= {"namespace": "bench", "labels": {"kueue.x-k8s.io/queue-name": queue}}
    return one


#: A node that no flavor has: a simulated cluster has at least one GPU.
_SPARE = _node("spare", {"type": "spare"}, 1000, 1024, 1, 1)


def _objects(file: Json) -> list[dict[str, Any]]:
    """Return everything but the jobs of a scenario with queues and groups of nodes."""
    told, queues = file["kueue"], file["queues"]
    found = [_configuration(told), _SPARE]
    for number, group in enumerate(file["nodes"]):
        found.append(_node(
            f"nodes-{number}", group["labels"], group["cpu_milli"], group["memory_mi"], group["gpu"], group["pods"],
            count=group["count"],
        ))  # fmt: skip
    found += [_kueue("ResourceFlavor", name, {"nodeLabels": labels}) for name, labels in file["flavors"].items()]
    used = {one for queue in queues.values() for quotas in queue["flavors"].values() for one in quotas}
    resources = [one for one in _RESOURCES if one in used]
    for name, queue in queues.items():
        found += [_cluster_queue(name, queue, told, resources), _local(name)]
    return found


def _local(name: str) -> dict[str, Any]:
    one = _kueue("LocalQueue", name, {"clusterQueue": name})
    one["metadata"]["namespace"] = "bench"
    return one


# Runs


def simulated(objects: Sequence[Json], jobs: Sequence[tuple[Json, float, float]], release: str) -> list[Done]:
    """Run jobs, each with its submission and its duration in seconds, under Kueue; return them in their order."""
    with tempfile.TemporaryDirectory() as folder:
        manifests = Path(folder) / "objects.yaml"
        texts = [yaml_text(dict(one)) for one in (*objects, *(job for job, _, _ in jobs))]
        manifests.write_text("---\n".join(texts), encoding="utf-8")
        policy = Kueue(manifests=str(manifests), timing=TIMING, release="v0.10" if release == "v0.10" else "main")
    gpus = [
        (int(one["metadata"]["annotations"]["simsched/count"]), int(one["status"]["allocatable"]["nvidia.com/gpu"]))
        for one in objects
        if one["kind"] == "Node" and "nvidia.com/gpu" in one["status"]["allocatable"]
    ]
    asked = [
        {
            "job_id": f"bench/{job['metadata']['name']}", "num_gpus": _gpus(job), "submit_time_s": submit_s,
            "duration_s": duration_s, "tenant": job["metadata"]["labels"]["kueue.x-k8s.io/queue-name"],
            "shape": None if _gpus(job) else NodeShape(1, Amount(0)),
        }
        for job, submit_s, duration_s in jobs
    ]  # fmt: skip
    groups = [{"nodes": count, "gpus_per_node": each, "gpu_type": "gpu"} for count, each in gpus]
    cluster = {"groups": groups}
    found = sim.simulate(jobs=asked, policy=policy, cluster=cluster, restart_delay_s=0, tick_s=0.001)
    return _done(found, jobs)


def _gpus(job: Json) -> int:
    spec = job["spec"]
    requests = spec["template"]["spec"]["containers"][0]["resources"]["requests"]
    return int(spec["parallelism"]) * int(requests.get("nvidia.com/gpu", 0))


def _done(found: sim.SimulationResults, jobs: Sequence[tuple[Json, float, float]]) -> list[Done]:
    runs = found.allocations.groupby("job_id")
    held = {str(name): rows.sort_values("start_s") for name, rows in runs}
    done = []
    for job, submit_s, _ in jobs:
        if (rows := held.get(f"bench/{job['metadata']['name']}")) is None:
            raise ValueError(f"{job['metadata']['name']} never runs")
        last = rows.iloc[-1]
        each = max(_gpus(job) // int(job["spec"]["parallelism"]), 1)
        places = {int(node): int(gpus) // each for node, gpus in (one.split(":") for one in last["placement"].split())}
        queue = job["metadata"]["labels"]["kueue.x-k8s.io/queue-name"]
        done.append(Done(queue, submit_s, rows.iloc[0]["start_s"], last["start_s"], last["end_s"], places))
    return done


# Metrics


def rows_of(file: Json) -> list[Row]:
    """Simulate a scenario and return its metrics; raises `InputError` for a file of another form."""
    try:
        measured = file["measured"]["kueue"]
        release = ".".join(file["kueue"]["kueue"].split(".")[:2])
        return list(_stepped(file, measured, release) if "steps" in file else _queued(file, measured, release))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        why = f"is no measured scenario ({type(error).__name__}: {error})"
        raise input_error(str(file.get("name", "file")), why, "see the README beside such files") from error


def _queued(file: Json, measured: Json, release: str) -> Iterator[Row]:
    """Yield the metrics of a scenario of queues."""
    told = [(submit_s, number) for number, group in enumerate(file["jobs"]) for submit_s in group["submit_s"]]
    jobs = []
    for place, (submit_s, number) in enumerate(sorted(told)):
        group = file["jobs"][number]
        job = _job(f"job-{place:05d}", group["queue"], group["pods"], group["request_per_pod"], {})
        jobs.append((job, submit_s, float(group["duration_s"])))
    done = simulated(_objects(file), jobs, release)
    modelled = release == "v0.10"
    for metric, value in measured.items():
        if metric == "makespan_s":
            yield _makespan(value, max(one.end_s for one in done) + TIMING.end_s - min(one.submit_s for one in done))
        elif metric == "mean_wait_s":
            for tenant, repeats in value.items():
                waits = [one.start_s - one.submit_s for one in done if one.queue.endswith(f"-{tenant}")]
                yield Row(f"mean wait of {tenant}, s", mean := fmean(repeats), fmean(waits), WAIT * mean)
        elif metric == "running_pods_saturated":
            pods = _saturated(done)
            for tenant, repeats in value.items():
                ours = sum(count for queue, count in pods.items() if queue.endswith(f"-{tenant}"))
                yield Row(f"saturated pods of {tenant}", fmean(repeats), ours, _pods_bar(repeats) if modelled else None)
        elif metric == "mean_wait_until_saturation_s":
            full = max(_running(done, one.first_s) for one in done)
            until = sorted(one.first_s for one in done)[full - 1]
            for tenant, repeats in value.items():
                own = [one for one in done if one.queue.endswith(f"-{tenant}") and one.first_s <= until]
                yield Row(
                    f"mean wait of {tenant} until full, s", fmean(repeats), fmean(o.first_s - o.submit_s for o in own)
                )


def _pods_bar(repeats: Sequence[float]) -> float:
    """Return the largest deviation of saturated pods: none, or the spread of repeats that differ."""
    return PODS if len(set(repeats)) == 1 else max(1.0, max(repeats) - min(repeats))


def _makespan(repeats: Sequence[float], ours: float) -> Row:
    mean = fmean(repeats)
    return Row("makespan, s", mean, ours, MAKESPAN * mean)


def _running(done: Sequence[Done], at_s: float) -> int:
    return sum(one.start_s <= at_s < one.end_s for one in done)


def _saturated(done: Sequence[Done]) -> dict[str, int]:
    """Return the running jobs of each queue when most run, last before the first one ends, at full tens of seconds."""
    times = range(0, math.ceil(min(one.end_s for one in done)), 10)
    full = max(times, key=lambda at: (_running(done, at), at))
    queues = sorted({one.queue for one in done})
    return {queue: sum(one.queue == queue and one.start_s <= full < one.end_s for one in done) for queue in queues}


def _stepped(file: Json, measured: Json, release: str) -> Iterator[Row]:
    """Yield the metrics of a scenario of steps: each submission runs on the nodes that are open then."""
    levels = [level if level != "hostname" else "kubernetes.io/hostname" for level in file["kueue"]["topology_levels"]]
    shut: set[str] = set()
    now_s, first_s, ends, steps = 0.0, None, [0.0], []
    for number, step in enumerate(file["steps"]):
        if "cordon" in step:
            shut = shut | set(step["cordon"]) if step.get("unschedulable", True) else shut - set(step["cordon"])
        elif "sleep_s" in step:
            now_s += step["sleep_s"]
        elif step.get("wait_until") == "Succeeded":
            now_s = max(now_s, *ends)
        elif "submit" in step:
            first_s = now_s if first_s is None else first_s
            done = _submitted(file, step["submit"], number, levels, shut, release)
            ends += [now_s + one.end_s + TIMING.end_s for one in done]
            steps.append([_hops(file, one.pods, shut) for one in done])
    for metric, of in (("mean_hops", fmean), ("max_hops", max)):
        for (name, repeats), hops in zip(measured.get(metric, {}).items(), steps, strict=True):
            yield Row(f"{metric.replace('_', ' ')}, {name}", fmean(repeats), of([of(one) for one in hops]))
    yield _makespan(measured["makespan_s"], max(ends) - (first_s or 0.0))


def _submitted(file: Json, told: Json, number: int, levels: Sequence[str], shut: set[str], release: str) -> list[Done]:
    """Run the jobs of a submission on empty nodes."""
    names = file["node_columns"]
    wanted = {"cpu": "cpu_milli", "memory": "memory_mi", "nvidia.com/gpu": "gpu"}
    objects: list[dict[str, Any]] = [_configuration(file["kueue"]), _SPARE]
    for row in file["nodes"]:
        one = dict(zip(names, row, strict=True))
        if one["name"] not in shut:
            places = {label: one[label] for label in levels if label in one}
            objects.append(_node(one["name"], places, one["cpu_milli"], one["memory_mi"], one["gpu"], 110))
    quota = [{"name": name, "nominalQuota": "1000000Gi"} for name in wanted]
    flavours = [{"name": "all", "resources": quota}]
    objects += [
        _kueue("Topology", "levels", {"levels": [{"nodeLabel": level} for level in levels]}),
        _kueue("ResourceFlavor", "all", {"nodeLabels": {"type": "kwok"}, "topologyName": "levels"}),
        _kueue("ClusterQueue", "all", {
            "namespaceSelector": {}, "resourceGroups": [{"coveredResources": list(wanted), "flavors": flavours}],
        }),
        _local("all"),
    ]  # fmt: skip
    level = "kubernetes.io/hostname" if told["level"] == "hostname" else told["level"]
    notes = {f"kueue.x-k8s.io/podset-{told['constraint']}-topology": level}
    made = [_job(f"job-{number}-{i}", "all", told["pods"], told, notes) for i in range(told["count"])]
    return simulated(objects, [(job, 0.0, float(told["duration_s"])) for job in made], release)


def _hops(file: Json, pods: Mapping[int, int], shut: set[str]) -> list[int]:
    """Return the hops of every pair of pods of a job; the first node of the run is the spare one."""
    levels = file["kueue"]["topology_levels"]
    rows = [dict(zip(file["node_columns"], row, strict=True)) for row in file["nodes"]]
    open_nodes = [row for row in rows if row["name"] not in shut]
    at = [node - 1 for node, count in pods.items() for _ in range(count)]

    def hops(one: int, other: int) -> int:
        if one == other:
            return 0
        shared = [open_nodes[one].get(level) == open_nodes[other].get(level) for level in levels[:-1]]
        return int(2 * (len(levels) - sum(shared)))

    return [hops(*pair) for pair in combinations(at, 2)] or [0]


def main(arguments: Sequence[str] | None = None) -> int:
    """Print every metric of the files; return 1 if one is outside its bar or none was read, 2 for another form."""
    parser = argparse.ArgumentParser(prog="python -m tests.validation.kwok", description=__doc__)
    parser.add_argument("files", nargs="*", type=Path, metavar="FILE.json")
    found: list[Row] = []
    try:
        for path in parser.parse_args(arguments).files:
            file = read_json(path)
            rows = rows_of(file)
            head = f"{path.name}: Kueue {file['kueue']['kueue']}"
            lines = [f"{head:38}{'measured':>10}{'simulated':>12}{'difference':>12}", *map(str, rows)]
            sys.stdout.write("\n".join(lines) + "\n")
            found += rows
    except InputError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    sys.stdout.write(f"{len(found)} metrics, {sum(row.off for row in found)} outside of their bars\n")
    return int(not found or any(row.off for row in found))


if __name__ == "__main__":
    sys.exit(main())
