"""Prepares an operator's manifests for a run: cluster, jobs and the policy's objects, from one folder."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from simsched.errors import input_error, nearest
from simsched.manifests import (
    POD_SET_GROUP,
    Account,
    Object,
    Workload,
    changes_of_pods,
    in_service,
    is_gpu,
    levels_of,
    merged,
    node_groups,
    objects_text,
    raise_any,
    read_nodes,
    read_objects,
    read_workloads,
    refuse_idle,
)
from simsched.operators.changes import Changed, changed_value
from simsched.operators.log_input import OperatorLog, cluster_groups
from simsched.operators.replays import ReplayPlan
from simsched.words import counted
from simsched.workload import Trace, make_trace
from simsched.workload.readers import Stated, jobs_of, read_trace

#: The copy of the objects that a run reads, next to its experiment.
OBJECTS_FILE = "objects.json"
#: The parameter for the file of policies that read objects.
_READS = {"kueue": "manifests", "kai": "objects"}


@dataclass(frozen=True)
class ManifestOptions:
    """What a user adds to the manifests.

    `durations` is a trace with the names of workloads, `duration` a distribution (`fixed:3600`), drawn with `seed`;
    workloads without a time come at second `submit_s`. `cluster` describes nodes if the manifests have none. `allow`
    names fields to accept although they are not modelled.
    """

    durations: Path | None = None
    duration: str = ""
    submit_s: float | None = None
    seed: int = 1
    cluster: Path | None = None
    allow: tuple[str, ...] = ()


def manifest_plan(
    path: Path,
    options: ManifestOptions,
    folder: Path,
    *,
    policy: str = "kueue",
    apply: Sequence[str] = (),
    reasons: bool = False,
    file: str = OBJECTS_FILE,
    grows: bool = False,
    **more: Any,
) -> ReplayPlan:
    """Read manifests, apply changes, write the policy's objects as `file` into `folder`, and return the plan.

    A change is a file of objects that replace those with the same names, or `KIND/NAME.PATH=VALUE`. With `reasons`, the
    run records the decisions on each workload; if it `grows`, quotas follow changes of the number of nodes. Raises
    `InputError` with every problem.
    """
    objects, replaced = changed(read_objects(path), apply)
    account = Account()
    nodes = read_nodes(objects, account)
    trace = _trace(path, objects, account, options, queued=policy == "kueue")
    account.judge(changes_of_pods, options.allow)
    if policy not in _READS:  # the others reject fewer fields, as they read more
        refuse_idle(options.allow, (account,))
    raise_any(account.problems)
    if trace is None:
        raise input_error(path, "holds no workload", "give jobs too: kubectl get jobs -o yaml, or those of a log")
    used = in_service(nodes)
    torn = len({node.gpu_type for node in used}) > 1 and any(
        _may_be_torn(one) for one in read_workloads(objects, account)
    )
    groups = node_groups(used, "gpu" if torn else "") if options.cluster is None else cluster_groups(options.cluster)
    if not groups:
        found = f"{counted(len(nodes), 'node')}, none of them ready with GPUs" if nodes else "no node"
        raise input_error(path, f"holds {found}", "add kubectl get nodes -o json, or state --cluster FILE")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / file).write_text(objects_text(objects), encoding="utf-8")
    away = sum(not node.takes_pods for node in nodes)
    said = [f"{path}: {counted(len(trace), 'workload')}, {counted(sum(one['nodes'] for one in groups), 'node')}"]
    said += [f"  left out: {counted(away, 'node')} not ready or cordoned"] if away else []
    beside = len(nodes) - len(used) - away
    said += [f"  {counted(beside, 'node')} without GPUs: they take pods, and no table names them"] if beside else []
    said += ["  all GPUs count as of one type, as sets of pods of one workload may get several flavors"] if torn else []
    said += [f"  left out: {count} {why}" for why, count in trace.dropped.items()]
    log = OperatorLog(trace, None, "\n".join(said))
    params: dict[str, Any] = {_READS[policy]: file} if policy in _READS else {}
    params |= {"allow": list(options.allow)} if options.allow and params else {}
    if policy == "kueue":
        params |= {"grows": True} if grows else {}
        params |= {"diagnostics": ["reasons"]} if reasons else {}
    most = int(trace.column("num_gpus").max())
    topology = () if grows or options.cluster is not None else levels_of(objects, used)
    more |= {"topology": topology, "changed": tuple(replaced)}
    return ReplayPlan(log, groups, policy, folder, params=params, max_gpus=max(most, 1), **more)


def _may_be_torn(workload: Workload) -> bool:
    """Return whether several pod sets of a workload request GPUs and may get different flavours."""
    with_gpus = [pods for pods in workload.pod_sets if any(map(is_gpu, pods.template.requests))]
    groups = {pods.template.notes.get(POD_SET_GROUP, pods.name) for pods in with_gpus}
    return len(groups) > 1


def _trace(
    path: Path, objects: Sequence[Object], account: Account, options: ManifestOptions, *, queued: bool
) -> Trace | None:
    """Return the workloads (only those with queues if only these run) as a trace; None if there are none."""
    known = {} if options.durations is None else _by_name(options.durations)
    draw = None if not options.duration else distribution(options.duration, np.random.default_rng(options.seed))
    jobs = jobs_of(objects, account, Stated(known, draw, options.submit_s))
    raise_any(account.problems)
    if not jobs.columns:
        return None
    keep = [bool(queue) or not queued for queue in jobs.columns["queue"]]
    columns = {
        name: [one for one, kept in zip(values, keep, strict=True) if kept] for name, values in jobs.columns.items()
    }
    dropped = {**jobs.dropped, "without a queue": keep.count(False)}
    return make_trace(str(path), "kubernetes", columns, origin=jobs.origin, dropped=dropped)


def _by_name(path: Path) -> Mapping[str, float]:
    """Return the run times of a log's jobs in seconds by name; the mean if several share a name."""
    table = read_trace(path).table
    means = table.groupby(table["job_id"].astype(str))["duration_s"].mean()
    return {str(name): float(seconds) for name, seconds in means.items()}


_DISTRIBUTIONS: Mapping[str, tuple[str, int, Callable[..., float]]] = {
    "fixed": ("SECONDS", 1, lambda rng, value: value),
    "exponential": ("MEAN", 1, lambda rng, mean: rng.exponential(mean)),
    "uniform": ("LOW,HIGH", 2, lambda rng, low, high: rng.uniform(low, high)),
    "lognormal": ("MEDIAN,SIGMA", 2, lambda rng, median, sigma: median * float(np.exp(sigma * rng.standard_normal()))),
}


def distribution(text: str, rng: np.random.Generator) -> Callable[[], float]:
    """Return a function that draws seconds; raises `InputError` if the text is not a distribution."""
    name, _, numbers = text.partition(":")
    if name not in _DISTRIBUTIONS:
        raise input_error("--duration", f"'{name}' is not a distribution", nearest(name, _DISTRIBUTIONS))
    form, count, draw = _DISTRIBUTIONS[name]
    try:
        values = [float(one) for one in numbers.split(",")]
    except ValueError:
        values = []
    ordered = name != "uniform" or values == sorted(values)
    if len(values) != count or not all(0 < one < float("inf") for one in values) or not ordered:
        raise input_error("--duration", f"'{text}' is not a {name} distribution", f"write {name}:{form}, all above 0")
    return lambda: max(1.0, float(draw(rng, *values)))


def changed(objects: Sequence[Object], changes: Sequence[str]) -> tuple[list[Object], list[Changed]]:
    """Apply changes to objects; raises `InputError` if one names an unknown object or field."""
    found, values = list(objects), list[Changed]()
    for change in changes:
        path, equals, text = change.partition("=")
        if not equals:
            found = merged(found, read_objects(Path(change)))
            values.append(Changed("objects", "as given", change))
            continue
        where = f"--change {change}"
        match = re.match(r"([A-Za-z]+)/([^=]+)", path)
        if match is None:
            remedy = "write KIND/NAME.PATH=VALUE, as in ClusterQueue/vision.spec.cohortName=all, or name a file"
            raise input_error(where, "names no object", remedy)

        def put(old: Any, key: str = path, text: str = text, where: str = where) -> Any:
            values.append(Changed(key, old, changed_value(old, text, where)))
            return values[-1].new

        found = _set(found, match[1], match[2], put, where)
    return found, values


def is_change_of_objects(change: str) -> bool:
    """Return whether a change applies to objects (KIND/NAME.PATH=VALUE, or a file), not to a key of an experiment."""
    return "=" not in change or re.match(r"[A-Z][A-Za-z]+/", change) is not None


def _set(objects: Sequence[Object], kind: str, path: str, put: Callable[[Any], Any], where: str) -> list[Object]:
    of_kind = [one for one in objects if one.kind == kind]
    named = {name: one for one in of_kind for name in (one.name, f"{one.namespace}/{one.name}")}
    name = max((name for name in named if path.startswith(f"{name}.")), key=len, default="")
    if not name:
        known = sorted({one.name for one in of_kind}) or sorted({one.kind for one in objects})
        raise input_error(where, f"there is no {kind} with this name", nearest(path.partition(".")[0], known))
    one = named[name]
    data = _with(one.data, path[len(name) + 1 :], put, where)
    return [replace(other, data=data) if other is one else other for other in objects]


def _with(data: Any, path: str, put: Callable[[Any], Any], where: str) -> Any:
    """Return a copy of plain data in which `put` replaces a value; lists take an index or the `name` of an item."""
    keys: dict[str, Any]
    if isinstance(data, list):
        names = [str(item.get("name", i)) if isinstance(item, dict) else str(i) for i, item in enumerate(data)]
        keys = {**{str(i): i for i in range(len(data))}, **{name: i for i, name in enumerate(names)}}
    elif isinstance(data, dict):
        keys = {key: key for key in data}
    else:
        raise input_error(where, f"there is no field '{path}'", "end the path at the field that holds a value")
    key = max((key for key in keys if path == key or path.startswith(f"{key}.")), key=len, default=None)
    if key is None:
        if isinstance(data, list):
            raise input_error(where, f"no item of the list is named '{path.partition('.')[0]}'", nearest(path, keys))
        key, _, rest = path.partition(".")
        return {**data, key: _with({}, rest, put, where) if rest else put(None)}
    rest = path[len(key) + 1 :]
    copy: Any = list(data) if isinstance(data, list) else dict(data)
    copy[keys[key]] = _with(data[keys[key]], rest, put, where) if rest else put(data[keys[key]])
    return copy
