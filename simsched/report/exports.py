"""Exports the schedule and jobs of a cell to formats of other tools: Chrome trace events, and Batsim's CSV of jobs."""

from __future__ import annotations

import gzip
import io
import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate
from pathlib import Path
from types import MappingProxyType
from typing import Any, BinaryIO, TextIO, cast

import pandas as pd

from simsched.files import written_aside
from simsched.outlets import csv_cell
from simsched.results import Cell
from simsched.results.stays import HELD_COLUMNS, OCCUPANCY_COLUMNS, Stay, node_sizes, runs_of, stays_of

_US = 1_000_000
#: Batsim's columns of jobs, in its order (documentation, "Jobs").
BATSIM_COLUMNS = (
    "job_id", "workload_name", "profile", "submission_time", "requested_number_of_resources", "requested_time",
    "success", "final_state", "starting_time", "execution_time", "finish_time", "waiting_time", "turnaround_time",
    "stretch", "allocated_resources", "consumed_energy", "metadata",
)  # fmt: skip
#: Batsim's names of final states; all others have completed.
_FINAL_STATES: Mapping[str, str] = MappingProxyType(
    {
        "Failed": "COMPLETED_FAILED",
        "Killed": "COMPLETED_KILLED",
        "Cancelled": "COMPLETED_KILLED",
        "TimeLimit": "COMPLETED_WALLTIME_REACHED",
    }
)
_COMPLETED = "COMPLETED_SUCCESSFULLY"


def write_perfetto(cell: Cell, path: Path) -> int:
    """Write the schedule of a cell as trace events, which Perfetto and Chrome open, and return the number of slices.

    A node is a process, a GPU a thread, and a stay of a job on a GPU a slice; the time during which it starts or
    restarts is a nested slice, and an outage is an interval of its node. A name that ends with .gz is compressed. The
    same cell gives the same bytes. Format: Trace Event Format (Google), object form with complete events.
    """
    slices = 0
    with written_aside(path) as aside, aside.open("wb") as file, _packed(file, path) as out:
        out.write('{"displayTimeUnit":"ms","traceEvents":[\n')
        for i, event in enumerate(trace_events(cell)):
            out.write((",\n" if i else "") + json.dumps(event, separators=(",", ":")))
            slices += event["ph"] == "X"
        about = {"policy": cell.shown_policy, "seed": cell.seed, "workload": cell.workload_name}
        out.write(f'\n],"otherData":{json.dumps(about)}}}\n')
    return slices


def _packed(file: BinaryIO, path: Path) -> TextIO:
    """Return a text file that writes into another, compressed if the path ends with .gz, without a time stamp."""
    inner = gzip.GzipFile("", "wb", 6, file, mtime=0) if path.suffix == ".gz" else file
    return io.TextIOWrapper(cast("BinaryIO", inner), encoding="ascii", newline="\n")


def trace_events(cell: Cell) -> Iterator[dict[str, Any]]:
    """Yield the trace events of a cell: names of nodes and GPUs, then slices in order of start, then outages.

    Processes and threads count from 1, times are microseconds.
    """
    jobs = cell.table("jobs", OCCUPANCY_COLUMNS)
    found = stays_of(cell.table("allocations", HELD_COLUMNS), jobs)
    outages = list(cell.outages[["node", "start_s", "end_s", "kind"]].itertuples(index=False, name=None))
    yield from _names(found, {int(node) for node, *_ in outages})
    facts = {
        job_id: {"application": application, "tenant": tenant, "GPUs asked for": gpus}
        for job_id, application, tenant, gpus in zip(
            *(jobs[name].tolist() for name in ("job_id", "application", "tenant", "num_gpus")), strict=True
        )
    }
    broken = {(int(node), start): kind for node, start, _, kind in outages}
    lost = {
        (stay.job_id, stay.number): broken[stay.node, stay.end_s]
        for stay in found
        if not stay.ended and (stay.node, stay.end_s) in broken
    }
    for stay in found:
        ended = "completed" if stay.ended else lost.get((stay.job_id, stay.number), "taken off its GPUs")
        args = {"job": stay.job_id, **facts.get(stay.job_id, {}), "start": stay.number, "ended": ended}
        for gpu in range(stay.first_gpu, stay.first_gpu + stay.gpus):
            yield _slice(stay, gpu, stay.job_id, stay.end_s, "job", args)
            if stay.ready_s > stay.start_s:
                name = "restart" if stay.number > 1 else "start"
                yield _slice(stay, gpu, name, stay.ready_s, name, {"job": stay.job_id})
    for i, (node, start, end, kind) in enumerate(outages):
        own = {"name": kind, "cat": "outage", "id": i, "pid": int(node) + 1, "tid": 0}
        yield {"ph": "b", "ts": _us(start), **own}
        yield {"ph": "e", "ts": _us(end), **own}


def _names(found: Sequence[Stay], nodes: set[int]) -> Iterator[dict[str, Any]]:
    gpus: dict[int, int] = dict.fromkeys(nodes, 0)
    for stay in found:
        gpus[stay.node] = max(gpus.get(stay.node, 0), stay.first_gpu + stay.gpus)
    for node in sorted(gpus):
        yield _named("process", node, 0, f"node {node}")
        yield {"ph": "M", "name": "process_sort_index", "pid": node + 1, "tid": 0, "args": {"sort_index": node}}
        for gpu in range(gpus[node]):
            yield _named("thread", node, gpu + 1, f"GPU {gpu}")


def _named(what: str, node: int, thread: int, name: str) -> dict[str, Any]:
    return {"ph": "M", "name": f"{what}_name", "pid": node + 1, "tid": thread, "args": {"name": name}}


def _slice(stay: Stay, gpu: int, name: str, end_s: float, kind: str, args: Mapping[str, Any]) -> dict[str, Any]:
    start = _us(stay.start_s)
    place = {"pid": stay.node + 1, "tid": gpu + 1, "ts": start, "dur": _us(end_s) - start}
    return {"ph": "X", "name": name, "cat": kind, **place, "args": args}


def _us(seconds: float) -> int:
    return round(float(seconds) * _US)


def batsim_jobs(cell: Cell) -> str:
    """Return the jobs of a cell as the CSV that Batsim writes (`_jobs.csv`), in order of completion.

    `execution_time` is `finish_time - starting_time` by Batsim's definition, and so includes the pauses of preempted
    jobs; `allocated_resources` are the GPUs of the last stay, numbered across all nodes. Unknown values are -1.
    """
    jobs = cell.table("jobs", [*OCCUPANCY_COLUMNS, "start_time_s"])
    submit, start, end = (jobs[name] for name in ("submit_time_s", "start_time_s", "end_time_s"))
    held, states = _last_gpus(cell, jobs), jobs["status"].map(_FINAL_STATES).fillna(_COMPLETED)
    facts = {
        "job_id": jobs["job_id"].map(csv_cell),
        "workload_name": csv_cell(cell.workload_name),
        "profile": jobs["application"].map(csv_cell),
        "submission_time": submit,
        "requested_number_of_resources": jobs["num_gpus"],
        "success": (states == _COMPLETED).astype(int),
        "final_state": states,
        "starting_time": start,
        "execution_time": end - start,
        "finish_time": end,
        "waiting_time": start - submit,
        "turnaround_time": end - submit,
        "stretch": ((end - submit) / (end - start)).where(end > start, -1),
        "allocated_resources": [_intervals(held.get(job_id, [])) for job_id in jobs["job_id"]],
        "metadata": "",
    }
    table = pd.DataFrame({name: facts.get(name, -1) for name in BATSIM_COLUMNS}, index=jobs.index)
    return table.to_csv(index=False, lineterminator="\n")


def _last_gpus(cell: Cell, jobs: pd.DataFrame) -> dict[str, list[int]]:
    """Return the GPUs of each job's last stay; jobs that share GPUs have the same ones."""
    intervals = cell.table("allocations", HELD_COLUMNS)
    sizes = node_sizes(cell.manifest.get("cluster"), [intervals])
    first = list(accumulate(sizes, initial=0))
    found: dict[str, tuple[int, list[int]]] = {}
    for stay in stays_of(intervals, jobs):
        number, gpus = found.get(stay.job_id, (0, []))
        own = [first[stay.node] + (stay.first_gpu + i) % sizes[stay.node] for i in range(stay.gpus)]
        found[stay.job_id] = (stay.number, own if stay.number != number else gpus + own)
    return {job_id: gpus for job_id, (_, gpus) in found.items()}


def _intervals(numbers: Sequence[int]) -> str:
    """Format numbers in Batsim's notation of sets: `0-3 7`."""
    ends = ((run[0], run[-1]) for run in runs_of(sorted(set(numbers))))
    return " ".join(str(low) if low == high else f"{low}-{high}" for low, high in ends)
