"""Summary statistics of traces and workloads."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from simsched.model import Capacity, JobSpec, Node, NodeShape
from simsched.model.placement import Amount
from simsched.workload.recipes.recipe import size_class_of
from simsched.workload.shapes import shapes_of
from simsched.workload.trace import Trace

HOUR_S = 3600
#: Two jobs of a tenant with equal GPUs belong to one batch if the second comes within this many seconds.
BATCH_GAP_S = 300
_MOST_EXAMPLES = 3
QUANTILES = (0.01, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99)


def trace_statistics(trace: Trace) -> dict[str, Any]:
    """Summarise a trace: sizes, durations, arrivals, batches, states, and what was left out.

    All values are plain numbers, strings, lists or mappings that JSON can hold. Shares are fractions of 1. Batches are
    jobs of one tenant with equal GPUs that follow each other within 300 s; size classes are by GPU-hours: S below 1, M
    below 10, L below 100, XL below 1000, XXL.
    """
    table = trace.table
    gpu_h = trace.gpu_time_s / HOUR_S
    submit = table["submit_time_s"].to_numpy("int64")
    return {
        "name": trace.name,
        "format": trace.source,
        "jobs": len(trace),
        "origin": None if trace.origin is None else str(trace.origin),
        "span_s": int(submit[-1]),
        "gpu_hours": float(gpu_h.sum()),
        "mean_gpus": float((table["num_gpus"] * table["gpu_share"]).mean()),
        "max_gpus": int(table["num_gpus"].max()),
        "gpu_mix": _gpu_mix(table, gpu_h),
        "duration_s": _spread(table["duration_s"].to_numpy("float64")),
        "size_classes": _size_classes(trace.gpu_time_s, gpu_h),
        "interarrival_s": _arrivals(submit),
        "batches": _batches(table),
        "status": _counts(table["status"]),
        "attempts_mean": float(table["attempts"].mean()),
        "tenants": _counts(table["tenant"]),
        "users": int(table["user"][table["user"] != ""].nunique()),
        "dropped": dict(trace.dropped),
        "adjusted": dict(trace.adjusted),
        "unused": list(trace.unused),
        "examples": {reason: [list(one) for one in found] for reason, found in trace.examples.items()},
    }


def demand_on(trace: Trace, nodes: Sequence[Node]) -> dict[str, Any]:
    """Compare what a trace demands of each GPU type with what nodes have, as plain values.

    `types` has a row for each set of types that jobs allow, and one for all jobs: `gpus` of these types, `jobs`,
    `gpu_hours`, and as shares of the GPUs there (None: there are none) `in_all` (what all jobs together ask for), and
    as if no job waited `at_once` (the most at one time) and `busy` (in the mean from the first submission to the last
    end). `never` has a row for each shape that fits on no idle nodes: what it `wants`, `jobs` and `examples`.
    """
    table = trace.table
    gpus = (table["num_gpus"] * table["gpu_share"]).to_numpy("float64")
    begins = table["submit_time_s"].to_numpy("float64")
    ends = begins + table["duration_s"].to_numpy("float64")
    allowed = np.asarray(table["gpu_types"] if "gpu_types" in table else [""] * len(table), dtype=object)
    span_h = (float(ends.max()) - float(begins.min())) / HOUR_S
    rows = []
    for named in [*sorted({*allowed} - {""}), None]:
        chosen = np.full(len(table), fill_value=True) if named is None else allowed == named
        there = sum(node.gpus for node in nodes if not named or node.gpu_type in named.split("|"))
        hours = float(((ends - begins) * gpus)[chosen].sum()) / HOUR_S
        asked = {
            "in_all": float(gpus[chosen].sum()),
            "at_once": _most_at_once(begins[chosen], ends[chosen], gpus[chosen]),
            "busy": hours / span_h if span_h else 0.0,
        }
        rows.append(
            {
                "gpu_types": named or "all",
                "gpus": there,
                "jobs": int(chosen.sum()),
                "gpu_hours": hours,
                **{name: value / there if there else None for name, value in asked.items()},
            }
        )
    return {"types": rows, "never": _never_run(trace, nodes)}


def _most_at_once(
    begins: npt.NDArray[np.float64], ends: npt.NDArray[np.float64], gpus: npt.NDArray[np.float64]
) -> float:
    """Return the most GPUs held at one time; ends come before beginnings of the same second."""
    at = np.concatenate([ends, begins])
    change = np.concatenate([-gpus, gpus])
    return float(np.cumsum(change[np.argsort(at, kind="stable")]).max())


def _never_run(trace: Trace, nodes: Sequence[Node]) -> list[dict[str, Any]]:
    """List the shapes of jobs that fit on no idle nodes, most frequent first."""
    free = [node.gpus for node in nodes]
    idle = Capacity.idle(SimpleNamespace(nodes=nodes, up=[True] * len(free), free=free, beside=None))
    shapes = shapes_of(trace.table).get("shape") or [None] * len(trace)
    found: dict[NodeShape, list[str]] = {}
    for job, gpus, shape in zip(trace.table["job_id"], trace.table["num_gpus"], shapes, strict=True):
        found.setdefault(shape or NodeShape(0, Amount(int(gpus))), []).append(str(job))
    never = [
        {"wants": shape.said, "jobs": len(jobs), "examples": jobs[:_MOST_EXAMPLES]}
        for shape, jobs in found.items()
        if idle.place_of(shape) is None
    ]
    return sorted(never, key=lambda row: (-row["jobs"], row["wants"]))


def describe(jobs: Sequence[JobSpec]) -> pd.DataFrame:
    """Count a workload's jobs by application, GPUs and batch size.

    Returns one row per combination, sorted, with the columns `application`, `num_gpus`, `batch_size`, `jobs`, `share`
    (of all jobs), `first_submit_s` and `last_submit_s`.
    """
    keys = ["application", "num_gpus", "batch_size"]
    table = pd.DataFrame(
        [(job.application, job.num_gpus, job.batch_size, job.submit_time_s) for job in jobs], columns=[*keys, "submit"]
    )
    counted = table.groupby(keys, sort=True)["submit"].agg(jobs="size", first_submit_s="min", last_submit_s="max")
    counted.insert(1, "share", counted["jobs"] / max(len(jobs), 1))
    return counted.reset_index()


def batch_numbers(table: pd.DataFrame, gap_s: int = BATCH_GAP_S) -> npt.NDArray[np.int64]:
    """Number the batches in a table: jobs of one tenant and GPU count, each within `gap_s` of the previous one."""
    order = table.sort_values(["tenant", "num_gpus", "submit_time_s"], kind="stable")
    tenant, gpus, submit = (order[name].to_numpy() for name in ("tenant", "num_gpus", "submit_time_s"))
    new = np.ones(len(order), dtype=bool)
    new[1:] = (tenant[1:] != tenant[:-1]) | (gpus[1:] != gpus[:-1]) | (submit[1:] - submit[:-1] > gap_s)
    numbers = np.empty(len(order), dtype=np.int64)
    numbers[order.index.to_numpy()] = np.cumsum(new) - 1
    return numbers


def _gpu_mix(table: pd.DataFrame, gpu_h: npt.NDArray[np.float64]) -> list[dict[str, float]]:
    mix = table.assign(gpu_h=gpu_h).groupby("num_gpus", sort=True)["gpu_h"].agg(jobs="size", gpu_hours="sum")
    total = max(float(mix["gpu_hours"].sum()), 1e-12)
    return [
        {
            "num_gpus": int(gpus),
            "jobs": int(jobs),
            "share": jobs / len(table),
            "gpu_hours": float(hours),
            "gpu_hours_share": float(hours) / total,
        }
        for gpus, jobs, hours in zip(mix.index.tolist(), mix["jobs"].tolist(), mix["gpu_hours"].tolist(), strict=True)
    ]


def _spread(values: npt.NDArray[np.float64]) -> dict[str, float]:
    quantiles = np.quantile(values, QUANTILES)
    named = {f"p{round(100 * q)}": float(value) for q, value in zip(QUANTILES, quantiles, strict=True)}
    return {"mean": float(values.mean()), "min": float(values.min()), **named, "max": float(values.max())}


def _size_classes(gpu_time_s: npt.NDArray[np.float64], gpu_h: npt.NDArray[np.float64]) -> dict[str, dict[str, float]]:
    classes = size_class_of(gpu_time_s)
    total = max(float(gpu_h.sum()), 1e-12)
    return {
        name: {
            "jobs": int((classes == name).sum()),
            "share": float((classes == name).mean()),
            "gpu_hours_share": float(gpu_h[classes == name].sum()) / total,
        }
        for name in ("S", "M", "L", "XL", "XXL")
    }


def _arrivals(submit: npt.NDArray[np.int64]) -> dict[str, float]:
    """Measure the burstiness of submissions; a Poisson process has a coefficient of variation (cv) and an idc of 1."""
    gaps = np.diff(submit)
    if len(gaps) == 0 or gaps.mean() == 0:
        return {}
    hourly = np.bincount(submit // HOUR_S)
    return {
        "mean": float(gaps.mean()),
        "cv": float(gaps.std() / gaps.mean()),
        "share_within_10_s": float((gaps <= 10).mean()),
        "share_within_60_s": float((gaps <= 60).mean()),
        "hourly_idc": float(hourly.var() / hourly.mean()),
    }


def _batches(table: pd.DataFrame) -> dict[str, float]:
    sizes = np.bincount(batch_numbers(table))
    return {
        "count": len(sizes),
        "mean_size": float(sizes.mean()),
        "max_size": int(sizes.max()),
        "share_of_one_job": float((sizes == 1).mean()),
    }


def _counts(names: pd.Series[str]) -> dict[str, int]:
    """Count names, most frequent first and ties by name; empty if the trace names none."""
    counts = names[names != ""].value_counts()
    pairs = [(str(name), int(count)) for name, count in counts.items()]
    return dict(sorted(pairs, key=lambda pair: (-pair[1], pair[0])))
