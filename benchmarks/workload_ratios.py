"""Compare policies on jobs drawn from Philly's own trace and from generated ones, and print tables.

    python benchmarks/workload_ratios.py PHILLY.csv OUT.csv [--seeds 20] [--loads 0.5 1 2] [--policies tiresias ...]

Jobs are drawn by the recipe `pollux`, tuned, 160 at load 1, with the shipped applications on 16 nodes of 4 GPUs; the
generated ones come from each seed's own stretch. The two workloads of a seed are coupled: both sort the jobs that may
be drawn by class and time of day and take those at the same shares of the list, so each is a draw with equal chances,
and they differ no more than the traces do. `--apart` draws as the recipe does instead. Mean JCTs are added to OUT.csv,
and what is in it is not run again. A Pollux run takes some 5 to 30 s of CPU, the others about one.
"""

from __future__ import annotations

import argparse
import csv
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from simsched.applications import ApplicationCatalogue, initial_batch_sizes, tuned_configurations
from simsched.engine import EngineOptions, MemoryRecorder, simulate
from simsched.model import Cluster, JobSpec
from simsched.policy import registry
from simsched.results import estimate
from simsched.workload import Trace
from simsched.workload.generator import STRETCH_DAYS, GeneratorOptions, stretch_of
from simsched.workload.readers import read_trace
from simsched.workload.recipes import PolluxRecipe, draw_workload, eligible

SOURCES = ("philly", "generated")
PARAMETERS: Mapping[str, Mapping[str, Any]] = {
    "pollux": {"fairness": -1, "interval_s": 60},
    "tiresias": {"queue_thresholds_gpu_s": [57600], "interval_s": 60},
    "optimus": {"interval_s": 60},
}
COLUMNS = ("source", "drawn", "load", "seed", "policy", "mean_jct_s", "s", "m", "l", "xl")
Row = dict[str, str]


def coupled(trace: Trace, recipe: PolluxRecipe, seed: int) -> Trace:
    """Reduce a trace to the jobs at certain shares of its list, sorted by class and time of day."""
    table = pd.DataFrame(dict(eligible(trace, recipe)))
    order = table.assign(c=np.searchsorted([3600, 36000, 360000], table["gpu_time_s"], side="right"))
    order = order.sort_values(["c", "time_s"], kind="stable")
    rng = np.random.default_rng([seed, 99])
    places: list[int] = []
    while len(places) < recipe.count:
        place = int(rng.random() * len(order))
        if place not in places:
            places.append(place)
    rows = order["row"].iloc[places].to_numpy()
    found = trace.table.set_index("row", drop=False).loc[rows]
    # The rows are numbered in the order of the draw, so that equal ranks meet equal random numbers of the recipe.
    found = found.assign(row=np.arange(len(found)), job_id=[str(i) for i in range(len(found))])
    found = found.sort_values("submit_time_s", kind="stable").reset_index(drop=True)
    return replace(trace, columns={str(name): column for name, column in found.items()})


class Bench:
    """Traces, applications and policies, ready to run."""

    def __init__(self, philly: Path, *, apart: bool) -> None:
        """Read the trace and the shipped applications."""
        self._philly = read_trace(philly)
        self._apart = apart
        self._applications = ApplicationCatalogue.load(None)
        known = self._applications.applications
        self._tuned, self._initial = tuned_configurations(known), initial_batch_sizes(known)

    def jobs(self, source: str, seed: int, load: float) -> tuple[list[JobSpec], list[int]]:
        """Draw a workload; returns it and how many jobs of each class it has."""
        recipe = PolluxRecipe(load=load)
        trace = self._philly if source == "philly" else stretch_of(GeneratorOptions(days=STRETCH_DAYS), seed)
        jobs = draw_workload(
            trace if self._apart else coupled(trace, recipe, seed), recipe, seed, self._tuned, self._initial
        )
        names = {"cifar10": 0, "ncf": 0, "deepspeech2": 1, "bert": 1, "yolov3": 2, "imagenet": 3}
        return jobs, np.bincount([names[job.application] for job in jobs], minlength=4).tolist()

    def mean_jct_s(self, policy: str, jobs: Sequence[JobSpec], seed: int) -> float:
        """Run a policy."""
        recorder = MemoryRecorder()
        made = registry.load(policy)(**PARAMETERS[policy])
        simulate(Cluster.uniform(16, 4, "t4"), jobs, self._applications, made, EngineOptions(), seed, recorder)
        return float(np.mean([job.jct_s for job in recorder.jobs]))


def run(bench: Bench, out: Path, wanted: argparse.Namespace) -> None:
    """Run what is missing, seed by seed, so that a stopped run leaves whole pairs."""
    drawn = "apart" if wanted.apart else "coupled"
    done = {tuple(row[c] for c in COLUMNS[:5]) for row in read(out)}
    for load in wanted.loads:
        for seed in range(1, wanted.seeds + 1):
            for source in wanted.sources:
                missing = [p for p in wanted.policies if (source, drawn, f"{load:g}", str(seed), p) not in done]
                if not missing:
                    continue
                jobs, classes = bench.jobs(source, seed, load)
                for policy in missing:
                    mean = bench.mean_jct_s(policy, jobs, seed)
                    with out.open("a", newline="", encoding="utf-8") as file:
                        row = [source, drawn, f"{load:g}", seed, policy, f"{mean:.3f}", *classes]
                        csv.writer(file, lineterminator="\n").writerow(row)


def read(out: Path) -> list[Row]:
    """Read what has been run, writing the header of a new file."""
    if not out.exists():
        out.write_text(",".join(COLUMNS) + "\n", encoding="utf-8")
    with out.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def table(rows: Sequence[Row], drawn: str) -> str:
    """Return the ratios of both sources with 95 % intervals over seeds, and how far they are apart, as Markdown."""
    frame = pd.DataFrame([row for row in rows if row["drawn"] == drawn]).astype({"mean_jct_s": float, "seed": int})
    jct = frame.pivot_table(index=["load", "source", "seed"], columns="policy", values="mean_jct_s") / 3600
    lines = ["| load | ratio | seeds | Philly | generated | generated / Philly |", "|---|---|---:|---:|---:|---:|"]
    for load, part in jct.groupby(level="load"):
        for name in ("tiresias", "optimus"):
            if not {name, "pollux"} <= set(part):
                continue
            ratio = (part[name] / part["pollux"]).droplevel("load").unstack("source").dropna()
            if len(ratio) < 2 or len(ratio.columns) < 2:
                continue
            found = [estimate(ratio[source]) for source in SOURCES]
            apart = estimate(np.log(ratio["generated"] / ratio["philly"]))
            means = [*(one.mean for one in found), math.exp(apart.mean)]
            shown = [f"{mean:.3f} ±{one.half_width:.3f}" for mean, one in zip(means, (*found, apart), strict=True)]
            lines.append(f"| {load} | {name} / pollux | {len(ratio)} | {' | '.join(shown)} |")
    lines += [
        "",
        "| load | policy | source | seeds | mean JCT (h) | sd between seeds (h) |",
        "|---|---|---|---:|---:|---:|",
    ]
    for (load, source), part in jct.groupby(level=["load", "source"]):
        for name in part:
            values = part[name].dropna()
            if len(values) > 1:
                lines.append(
                    f"| {load} | {name} | {source} | {len(values)} | {values.mean():.3f} | {values.std():.3f} |"
                )
    return "\n".join(lines)


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("philly", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--loads", type=float, nargs="+", default=[0.5, 1.0, 2.0])
    parser.add_argument("--policies", nargs="+", choices=sorted(PARAMETERS), default=sorted(PARAMETERS))
    parser.add_argument("--sources", nargs="+", choices=SOURCES, default=SOURCES)
    parser.add_argument("--apart", action="store_true", help="draw as the recipe does, not coupled")
    wanted = parser.parse_args()
    run(Bench(wanted.philly, apart=wanted.apart), wanted.out, wanted)
    print(table(read(wanted.out), "apart" if wanted.apart else "coupled"))


if __name__ == "__main__":
    main()
