"""Replays published costs of spot policies: `python -m tests.validation.spot COSTS.csv... --data FOLDER`.

Every row of such a file runs through the engine with the shipped policy; its cost is counted as the published sweeps
count it (ticks, probes and transfers; the tick in which a job over several zones ends is never billed). The exit code
is 1 if a row differs by more than 1e-6 or none was read. Columns and files: the README of FOLDER.
"""

from __future__ import annotations

import argparse
import sys
from collections import defaultdict
from functools import cache
from math import ceil
from pathlib import Path

import pandas as pd
from simsched_policies.spot.optimum import SpotOptimum
from simsched_policies.spot.uniform_progress import (
    UniformProgress,
    UniformProgressA,
    UniformProgressAP,
    UniformProgressS,
)

from simsched.applications import catalogue
from simsched.arithmetic import Series
from simsched.engine import EngineOptions, FailureOptions, Simulation
from simsched.model import Cluster, JobSpec, NodeGroup
from simsched.model.outages import Market, MarketGroup, transfer_cost

POLICIES = {
    "up": UniformProgress, "up_s": UniformProgressS, "up_a": UniformProgressA, "up_ap": UniformProgressAP,
    "optimal": SpotOptimum,
}  # fmt: skip
OVER_ZONES = {"up_best": min, "up_average": lambda costs: sum(costs) / len(costs)}
CLOSE, PROBE_S, HOUR_S, _DONE_S = 1e-6, 60, 3600, 0.001


@cache
def tables(folder):
    """Return zones, availability by trace, and prices by tick for zones whose price changes."""
    zones = pd.read_csv(folder / "zones.csv", index_col="zone")
    available = {name: pd.read_csv(folder / f"{name}_available.csv", index_col="tick") for name in set(zones["trace"])}
    changes = {}
    for path in folder.glob("*_spot_prices.csv"):
        for zone, rows in pd.read_csv(path).groupby("zone"):
            ticks = len(available[zones.loc[zone, "trace"]])
            changes[zone] = rows.set_index("from_tick")["price"].reindex(range(ticks), method="ffill").tolist()
    return zones, available, changes


def market(folder, names, start, ticks, gap_s):
    """Return a node of each kind in each zone, from a tick of the trace on; no spot after `ticks`."""
    zones, available, changes = tables(folder)
    groups = []
    for index, name in enumerate(names):
        zone = zones.loc[name]
        free = [*available[zone["trace"]][name].iloc[start : start + ticks], 0]
        prices = changes[name][start : start + ticks + 1] if name in changes else [zone["spot"]]
        spot, on_demand = Series(gap_s, prices), Series(gap_s, [zone["on_demand"]])
        groups.append(MarketGroup(name, range(2 * index, 2 * index + 1), True, spot, Series(gap_s, free)))
        groups.append(MarketGroup(name, range(2 * index + 1, 2 * index + 2), False, on_demand))
    return Market(tuple(groups))


def cost(folder, row, policy, names):
    """Return the cost of one policy on one window, in dollars."""
    work_s, deadline_s, restart_s = HOUR_S * row.duration_h, HOUR_S * row.deadline_h, HOUR_S * row.restart_h
    gap_s = row.gap_s
    ticks = round(deadline_s / gap_s)
    offered = market(folder, tuple(names), int(row.start_tick), ticks, gap_s)
    if work_s + restart_s > deadline_s:
        return (work_s + restart_s) / HOUR_S * min(one.prices.at(0) for one in offered.groups if not one.spot)
    made = POLICIES[policy](interval_s=gap_s, checkpoint_gb=row.checkpoint_gb)
    job = JobSpec(id="job", submit_time_s=0.0, num_gpus=1, duration_s=work_s, deadline_s=deadline_s)
    cluster = Cluster.of(NodeGroup(2 * len(names), 1))
    options = EngineOptions(restart_delay_s=restart_s, tick_s=0)
    failures = FailureOptions(market=offered)
    simulation = Simulation(cluster, [job], catalogue(), options, 1, made, failures=failures)
    made.begin(cluster)
    simulation.run(made)
    return billed(simulation.recorder, offered, made, policy, row)


def billed(recorder, offered, made, policy, row):
    """Count the cost of a finished run."""
    gap_s, groups = row.gap_s, offered.groups
    held = {}
    for interval in recorder.allocations:
        first, last = round(interval.start_s / gap_s), ceil((interval.end_s - _DONE_S) / gap_s)
        held |= dict.fromkeys(range(first, last), int(interval.placement.partition(":")[0]))
    if policy == "up":
        return sum(gap_s / HOUR_S * groups[node].prices.at((tick + 1) * gap_s) for tick, node in held.items())
    probes, total, home = defaultdict(set), 0.0, None
    for _, tick, zone in getattr(made, "probes", ()):
        probes[tick].add(zone)
    for tick in range(max(held)):
        at_s, node = tick * gap_s, held.get(tick)
        seconds = gap_s
        for zone in probes[tick]:
            if node is None or node // 2 != zone:
                total += PROBE_S / HOUR_S * groups[2 * zone].prices.at(at_s)
            elif groups[node].spot:
                seconds = PROBE_S
        if node is not None:
            total += seconds / HOUR_S * groups[node].prices.at(at_s)
            zone = groups[node].zone
            if home is not None and home != zone:
                total += transfer_cost(home, zone, row.checkpoint_gb)
            home = zone
    return total


def replay(path, folder, only=()):
    """Return the rows of a file with their costs replayed; NaN for policies that are not shipped."""
    rows = pd.read_csv(path)
    rows = rows[rows["policy"].isin(only)] if only else rows
    published = rows["cost_rerun"].fillna(rows["cost"]) if "cost_rerun" in rows else rows["cost"]
    costs, single = {}, defaultdict(dict)
    for row in rows.itertuples():
        if row.policy in POLICIES:
            names = [row.zone] if row.policy == "up" else row.zones.split()
            costs[row.Index] = cost(folder, row, row.policy, names)
            if row.policy == "up":
                single[row.ratio, row.checkpoint_gb, row.zone][row.start_tick] = costs[row.Index]
    for row in rows.itertuples():
        if row.policy in OVER_ZONES:
            alone = [single[row.ratio, row.checkpoint_gb, zone].values() for zone in row.zones.split()]
            if all(alone):
                costs[row.Index] = OVER_ZONES[row.policy]([sum(found) / len(found) for found in alone])
    return rows.assign(published=published, ours=pd.Series(costs, dtype=float))


def main(arguments):
    """Print rows equal by policy, the largest difference and the first row that differs; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.validation.spot", description=__doc__)
    parser.add_argument("costs", nargs="+", type=Path)
    parser.add_argument("--data", type=Path, required=True, help="folder of traces and zones")
    parser.add_argument("--only", action="append", default=[], help="only this policy; repeatable")
    given = parser.parse_args(arguments)
    read = different = 0
    for path in given.costs:
        try:
            rows = replay(path, given.data, given.only)
        except (OSError, KeyError, AttributeError, ValueError) as error:
            sys.stderr.write(f"{path}: cannot be replayed with {given.data}: {type(error).__name__}: {error}\n")
            return 2
        left_out = rows[rows["ours"].isna()]
        rows = rows[rows["ours"].notna()]
        off = (rows["ours"] - rows["published"]).abs()
        wrong = off > CLOSE
        read, different = read + len(rows), different + int(wrong.sum())
        others = ", ".join(sorted(set(left_out["policy"])))
        sys.stdout.write(f"{path.name}: {len(rows)} rows, {len(left_out)} left out ({others or 'none'})\n")
        for policy, part in off.groupby(rows["policy"]):
            equal = f"{int((part <= CLOSE).sum())} of {len(part)} equal"
            sys.stdout.write(f"  {policy:12} {equal}, largest difference {part.max():.3g} $\n")
        if wrong.any():
            first = rows[wrong].iloc[0]
            line = rows.index[wrong][0] + 2
            at = f"line {line}: {first.policy} {first.zone} window {first.window} ratio {first.ratio}"
            sys.stdout.write(f"  first that differs, {at}: {first.ours:.9f} for {first.published:.9f} $\n")
    return int(different > 0 or read == 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
