"""Reads and writes lists of outages as CSV: node, down and up in seconds; when reading, also kind."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from simsched.errors import InputError, Problem, input_error
from simsched.model.outages import Outage
from simsched.reading import read_json, read_records, unused
from simsched.workload.trace import MOST_SECONDS

COLUMNS = ("node", "down", "up")
_DAY_S = 86_400
#: The fields read from an event of a fault trace.
_KEYS = ("node_id", "event_time", "event_type", "fault_type")


def read_outages(path: Path, nodes: int | None = None) -> tuple[Outage, ...]:
    """Read a list of outages, or a trace of faults (.json), sorted by start.

    `nodes` is the number of nodes of the cluster (None: unknown). A CSV may name the kind of an outage, such as
    maintenance.

    Raises `InputError` naming every line with a value that is not a number, an end before its start, a node that does
    not exist, or an overlap with another outage of the same node.
    """
    if path.suffix == ".json":
        return read_fault_trace(path, nodes)
    found: list[tuple[Outage, int]] = []
    problems: list[Problem] = []
    for line, row in read_records(path, COLUMNS, ("kind",)):
        try:
            found.append((_outage(row, nodes), line))
        except ValueError as error:
            problems.append(Problem(str(path), str(error), "", line))
    problems += _overlaps(path, found)
    if problems:
        raise InputError(*sorted(problems, key=lambda problem: problem.line))
    return tuple(sorted((outage for outage, _ in found), key=lambda one: (one.down_s, one.node)))


def write_outages(outages: Sequence[Outage]) -> str:
    """Return a list of outages as CSV text, in the same order."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(COLUMNS)
    writer.writerows((one.node, f"{one.down_s:.10g}", f"{one.up_s:.10g}") for one in outages)
    return out.getvalue()


def read_fault_trace(path: Path, nodes: int | None = None) -> tuple[Outage, ...]:
    """Read an InfiniteHBD-Trace: a JSON array of events, each the start or the end of a fault of a node.

    Nodes get indices in the order of their first fault, and time counts from the first event. Returns every fault;
    those of one node may overlap (`merged` joins them). Raises `InputError` if the file has another layout or faults of
    more than `nodes` nodes (None: any number).
    """
    events = read_json(path, "name a fault trace")
    try:
        outages = list(_faults(events))
    except (AttributeError, KeyError, TypeError, ValueError, RecursionError) as error:
        remedy = "an event has node_id, event_time (days), event_type (fault_start or fault_end) and fault_type"
        raise input_error(path, f"is not a fault trace: {error}", remedy) from None
    unused(path, dict.fromkeys(key for event in events for key in event), _KEYS, what="key")
    count = len({one.node for one in outages})
    if nodes is not None and count > nodes:
        raise input_error(path, f"has faults of {count} nodes, the cluster has {nodes}", "make the cluster as large")
    return tuple(sorted(outages, key=lambda one: (one.down_s, one.node)))


def _faults(events: Sequence[Mapping[str, Any]]) -> Iterator[Outage]:
    """Match starts with ends of the same node and kind of fault, in order."""
    nodes: dict[str, int] = {}
    begun: dict[tuple[str, str], list[float]] = {}
    origin = min((_days(event["event_time"]) for event in events), default=0.0)
    for event in events:
        node = nodes.setdefault(event["node_id"], len(nodes))
        fault = (event["node_id"], json.dumps(event["fault_type"], sort_keys=True))
        time_s = (_days(event["event_time"]) - origin) * _DAY_S
        if event["event_type"] == "fault_start":
            begun.setdefault(fault, []).append(time_s)
        elif begun.get(fault):
            yield Outage(node, begun[fault].pop(0), time_s)
        else:
            raise ValueError(f"a fault of node {event['node_id']} ends before it begins")


def _days(given: Any) -> float:
    days = float(given)
    if not abs(days) * _DAY_S <= MOST_SECONDS:
        raise ValueError(f"{given!r:.40} is not a time in days")
    return days


def merged(outages: Sequence[Outage]) -> tuple[Outage, ...]:
    """Merge outages of the same node that overlap or touch."""
    return tuple(sorted(_merged(outages), key=lambda one: (one.down_s, one.node)))


def _merged(outages: Sequence[Outage]) -> Iterator[Outage]:
    last: dict[int, Outage] = {}
    for one in sorted(outages, key=lambda outage: outage.down_s):
        before = last.get(one.node)
        if before is not None and one.down_s <= before.up_s:
            last[one.node] = before._replace(up_s=max(before.up_s, one.up_s))
            continue
        if before is not None:
            yield before
        last[one.node] = one
    yield from last.values()


def _outage(row: Mapping[str, str | None], nodes: int | None) -> Outage:
    try:
        node, down_s, up_s = int(row["node"] or ""), float(row["down"] or ""), float(row["up"] or "")
    except ValueError:
        raise ValueError(f"'{row['node']},{row['down']},{row['up']}' is not a node with two times in seconds") from None
    if node < 0 or (nodes is not None and node >= nodes):
        message = f"there is no node {node}; " + (
            "count from 0" if nodes is None else f"the nodes are 0 to {nodes - 1}"
        )
        raise ValueError(message)
    if not abs(up_s) <= MOST_SECONDS:
        raise ValueError(f"node {node} is up again at {up_s:g} s, which is too late")
    if not 0 <= down_s <= up_s:
        raise ValueError(f"node {node} is up again at {up_s:g} s, before it goes down at {down_s:g} s")
    kind = (row.get("kind") or "").strip()
    return Outage(node, down_s, up_s, kind) if kind else Outage(node, down_s, up_s)


def _overlaps(path: Path, found: Sequence[tuple[Outage, int]]) -> Iterator[Problem]:
    last: dict[int, tuple[Outage, int]] = {}
    for outage, line in sorted(found, key=lambda one: (one[0].down_s, one[1])):
        before = last.get(outage.node)
        if before is not None and outage.down_s < before[0].up_s:
            message = f"this outage of node {outage.node} overlaps the one in line {before[1]}"
            yield Problem(str(path), message, "make one of the two", line)
        last[outage.node] = (outage, line)
