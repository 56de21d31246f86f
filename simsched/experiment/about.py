"""The part of a cell's manifest that describes its task for readers; the task itself determines the cell's key."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from simsched.engine import SEMANTICS
from simsched.experiment.cluster import ClusterSpec, market_of, prices_of
from simsched.experiment.policy_params import full_params, input_files
from simsched.experiment.task import Chosen, Task, digest_of
from simsched.model import Cluster
from simsched.policy import Policy
from simsched.policy.signals import known_by
from simsched.results.rows import SCHEMA_VERSION
from simsched.sources import code, content_of, plugin_code


def groups_of(cluster: Cluster) -> list[dict[str, Any]]:
    """Describe a cluster as groups of consecutive equal nodes."""
    runs = itertools.groupby(cluster.nodes, key=lambda node: (node.gpus, node.gpu_type))
    return [{"nodes": len(list(run)), "gpus_per_node": gpus, "gpu_type": kind} for (gpus, kind), run in runs]


def costs_of(spec: ClusterSpec) -> dict[str, Any]:
    """Return the prices and the power of a cluster, if given."""
    prices = {"node_price_per_h": spec.node_price_per_h, "gpu_price_per_h": dict(spec.gpu_price_per_h) or None}
    market = market_of(spec)
    costs: dict[str, Any] = {
        **prices,
        "power": spec.drawn_w(),
        "market": None if market is None else prices_of(market),
        "bill_s": spec.bill_s,
    }
    return {name: cost for name, cost in costs.items() if cost is not None}


@dataclass(frozen=True)
class Choice:
    """A plugin of a cell: digest, manifest entry and libraries."""

    digest: str
    about: Mapping[str, Any]
    libraries: Mapping[str, str]

    @classmethod
    def of(cls, choice: Chosen) -> Choice:
        """Load a choice's class or function and read its sources and input files."""
        kind: type[Any] = choice.load()
        added = plugin_code(kind)
        files = {name: content_of(Path(path)) for name, path in sorted(input_files(kind, choice.params).items())}
        about = {
            "name": choice.name,
            "class": kind.__qualname__,
            "params": full_params(kind, choice.params, choice.diagnostics),
            "source": dict(sorted(added.modules.items())),
        }
        return cls(digest_of(choice), about | ({"files": files} if files else {}), added.libraries)


def about_task(task: Task, made: Policy, plugins: Sequence[Choice], digests: Mapping[str, str]) -> dict[str, Any]:
    """Describe a task with the policy `made` and its `plugins`; `digests` are those of its jobs and applications."""
    policy, *others = plugins
    libraries = dict(code().libraries)
    for one in plugins:
        libraries |= one.libraries
    about: dict[str, Any] = {
        "seed": task.seed,
        "policy": {name: policy.about[name] for name in ("name", "class", "params")},
        "policy_source": policy.about["source"],
        "policy_needs": sorted(signal.name for signal in made.signals),
        "policy_knows": known_by(made.signals),
        "policy_rigid": made.rigid,
        "diagnostics": list(task.policy.diagnostics),
        "cluster": groups_of(task.cluster),
        "gpu_memory_mb": dict(sorted(task.cluster.memory_mb.items())),
        "engine": asdict(task.engine),
        "engine_semantics": SEMANTICS,
        "jobs": len(task.jobs),
        "jobs_hash": digests["jobs"],
        "applications": asdict(task.applications),
        "applications_hash": digests["applications"],
        "code_hash": code().digest,
        "libraries": dict(sorted(libraries.items())),
        "results_schema": SCHEMA_VERSION,
        **task.costs,
    }
    if made.follows:
        about["policy_follows"] = made.follows
    if "files" in policy.about:
        about["policy_files"] = policy.about["files"]
    if task.agent is not None:
        about["agent"] = others.pop(0).about
    if others:
        about["processes"] = [one.about for one in others]
    return about | _conditions(task)


def _conditions(task: Task) -> dict[str, Any]:
    """Describe the optional parts of a task."""
    about: dict[str, Any] = {}
    if task.cluster.levels:
        about["topology"] = [level.described() for level in task.cluster.levels]
    if task.cluster.within:
        about["tiers"] = [asdict(tier) for tier in task.cluster.within]
    if task.gpu_speed:
        about["gpu_speed"] = dict(task.gpu_speed)
    if task.losses:
        about["losses"] = True
    if task.tuning is not None:
        about["tuning"] = asdict(task.tuning)
    sharing, failures = task.sharing, task.failures
    if sharing is not None and sharing.max_jobs > 1:
        about["sharing"] = sharing.model_dump(exclude={"pairs_path"})
        if sharing.pairs_path is not None:
            about["sharing"]["pairs"] = content_of(Path(sharing.pairs_path))
    if failures is not None:
        about["failures"] = asdict(replace(failures, market=None)) | {
            "outages": digest_of(failures.outages),
            "listed_outages": len(failures.outages),
        }
    return about
