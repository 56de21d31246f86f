"""Compare the answers for operators with the truth of the reference cluster, seed by seed.

    python benchmarks/operators_truth.py OUT --seeds 1 2 3 [--days 14] [--what waits changes capacity shut live]

`waits` replays the unchanged log, complete and without processors and caps; `changes` forecasts 50 and 34 nodes
of A100 instead of 40 and a cap of 48 GPUs instead of 64, and compares with the cluster run that way; `capacity` asks
for the nodes with which mean waits are less than the log recorded, and runs the cluster with these; `shut` tries logs
without partitions, cut to GPUs and times, and a wrong policy; `live` forecasts the queue of twelve moments of a smaller
cluster's log. Each seed takes some minutes of CPU.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from simsched.cli.operator_options import make_plan
from simsched.operators import Calibration, ReplayPlan, Target, backtest, calibrate, find_capacity, what_if
from tests.validation.oracles.slurm_cluster import REFERENCE, SMALL, Cluster, Site
from tests.validation.oracles.slurm_jobs import LOAD, SMALL_LOAD, draw_jobs
from tests.validation.oracles.slurm_texts import WARM_DAYS, write_all

#: The loads without caps and processors, which then delay no job.
PLAIN_LOAD = {"a100": 0.86, "v100": 0.7, "h100": 0.75, "debug": 0.02}
_BLANK = {"stripped": ("Partition",), "cut": ("Partition", "QOS", "Account", "User", "Timelimit", "ReqTRES", "NodeList",
                                              "NNodes", "NCPUS")}  # fmt: skip


def plan_of(folder: Path, log: str = "log.txt", policy: str = "slurm-backfill", *settings: str) -> ReplayPlan:
    """Read the files of a folder as the command does."""
    return make_plan(
        folder / log, policy, folder / "cluster.txt", settings, "auto", "UTC", False, folder / "results", 1,
        (folder / "slurm.conf", folder / "qos.txt") if policy == "slurm-backfill" else (),
    )  # fmt: skip


def rows_of(found: Calibration) -> Iterator[str]:
    """Say how far the waits of each part are off."""
    verdict = found.verdict
    yield f"  gate {'open' if verdict.is_open else 'SHUT: ' + '; '.join(verdict.reasons)}"
    for row in verdict.rows:
        yield (
            f"  {row.kind:5} {row.group:12} {row.jobs:5} recorded {row.recorded_mean_s.value / 3600:6.2f} h, "
            f"off {100 * row.off.value:+5.0f} %, skill {row.waited_skill if row.waited_skill is not None else 1:.2f}"
        )


def changes_of(folder: Path, jobs: Sequence[Any], site: Site) -> Iterator[str]:
    """Compare forecasts of changes with the truth."""
    plan = plan_of(folder)
    place = next(i for i, one in enumerate(plan.groups) if one["gpu_type"] == "a100")
    cap = [f"policy.limits.qos.{name}.per_user.gpus=48" for name, _ in site.qos]
    tried = {
        "50 nodes": ((f"cluster.groups.{place}.nodes=50",), site.with_nodes("a", 50)),
        "34 nodes": ((f"cluster.groups.{place}.nodes=34",), site.with_nodes("a", 34)),
        "cap of 48": (tuple(cap), replace(site, cap=48)),
    }
    for name, (change, other) in tried.items():
        answer = what_if(plan, change, by=("queue",), trust_anyway=True)
        true = {str(one.id): (one.start_s or 0) - one.submit_s for one in Cluster(other, jobs).run()}
        judged = answer.calibration.jobs
        judged = judged.assign(true_s=judged["job_id"].map(true))
        for effect in answer.effects:
            group = effect.before.group
            mine = judged if group == "all" else judged[judged["queue"] == group]
            found, mean = effect.forecast, float(mine["true_s"].mean())
            if found is None:
                continue
            change_s = mean - found.now_s
            right = {"less": change_s < 0, "more": change_s > 0}.get(found.direction, True)
            yield (
                f"  {name:10} {group:6} now {found.now_s / 3600:6.2f} true {mean / 3600:6.2f} forecast "
                f"{found.mean_s / 3600:6.2f} ({100 * (found.mean_s / mean - 1):+4.0f} %) "
                f"[{found.low_s / 3600:6.2f}, {found.high_s / 3600:6.2f}] "
                f"{'in' if found.low_s <= mean <= found.high_s else 'OUT'} {found.direction} {'' if right else 'WRONG'}"
            )


def capacity_of(folder: Path, jobs: Sequence[Any], site: Site) -> Iterator[str]:
    """Ask for the H100 nodes that meet a target missed by those in the log, and run these in the true cluster."""
    plan = plan_of(folder)
    found = calibrate(plan)
    recorded_h, kind = float(found.jobs["recorded_s"].mean()) / 3600, site.kinds[2]
    target = Target.parse(f"queueing_mean_h<={0.95 * recorded_h:.4f}")
    group = next(i for i, one in enumerate(plan.groups) if one["gpu_type"] == kind.gpu_type)
    answer = find_capacity(found, target, group=group)
    said = f"  {kind.nodes} {kind.gpu_type} nodes, recorded {recorded_h:.2f} h, target {target.bound:.2f} h: "
    if answer.nodes is None:
        yield f"{said}no number"
        return
    runs = {str(one.id): one for one in Cluster(site.with_nodes(kind.name, answer.nodes), jobs).run()}
    waits = [(runs[name].start_s or 0) - runs[name].submit_s for name in found.jobs["job_id"]]
    refuted = "" if answer.nodes > kind.nodes else "REFUTED"
    yield f"{said}{answer.nodes} nodes, true mean {sum(waits) / len(waits) / 3600:.2f} h {refuted}"


def shut_of(folder: Path) -> Iterator[str]:
    """Say what the gate makes of logs that lack something, and of a wrong policy."""
    header, *rows = (folder / "log.txt").read_text(encoding="utf-8").splitlines()
    names = header.split("|")
    for name, blank in _BLANK.items():
        at = [names.index(one) for one in blank if one in names]
        lines = [header]
        for row in rows:
            cells = row.split("|")
            for i in at:
                cells[i] = ""
            lines.append("|".join(cells))
        (folder / f"{name}.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    for log, policy in (
        ("stripped.txt", "slurm-backfill"),
        ("cut.txt", "slurm-backfill"),
        ("log.txt", "fifo"),
        ("log.txt", "kueue"),
    ):
        verdict = calibrate(plan_of(folder, log, policy)).verdict
        every, how = verdict.rows[0], "OPEN" if verdict.is_open else "shut"
        yield f"  {log:13} {policy:15} {how} off {100 * every.off.value:+.0f} %, skill {every.waited_skill or 1:.2f}"


def live_of(folder: Path, seed: int) -> str:
    """Say how many starts came within their intervals, of how many that waited at twelve moments."""
    found = backtest(plan_of(folder), moments=12, draws=8, seed=seed)
    return (
        f"seed {seed}, live: {100 * found.coverage:.0f} % of {len(found.starts)} starts within 80 % intervals, "
        f"{found.error_s / 3600:.2f} h off in the median, the usual rest of a wait {found.guess_error_s / 3600:.2f} h"
    )


def main() -> None:
    """Print the requested comparisons of each seed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1])
    parser.add_argument("--days", type=float, default=14)
    parser.add_argument("--what", nargs="+", default=["waits", "changes", "capacity", "shut"])
    given = parser.parse_args()
    for seed in given.seeds:
        folder = given.out / f"seed{seed}"
        jobs = draw_jobs(REFERENCE, seed, WARM_DAYS + given.days, LOAD)
        write_all(folder, REFERENCE, jobs, given.days)
        if "waits" in given.what:
            print(f"seed {seed}, with everything", *rows_of(calibrate(plan_of(folder))), sep="\n", flush=True)
            site = replace(REFERENCE, cap=None, counts_cpus=False)
            write_all(folder / "plain", site, draw_jobs(site, seed, WARM_DAYS + given.days, PLAIN_LOAD), given.days)
            print(
                f"seed {seed}, without caps and processors",
                *rows_of(calibrate(plan_of(folder / "plain"))),
                sep="\n",
                flush=True,
            )
        if {"changes", "capacity"} & set(given.what):
            # The log starts with the empty cluster, like the truth under another setting.
            young = draw_jobs(REFERENCE, seed, given.days, LOAD)
            write_all(folder / "young", REFERENCE, young, given.days, warm_days=0)
        for what, asked in (("changes", changes_of), ("capacity", capacity_of)):
            if what in given.what:
                print(f"seed {seed}, {what}", *asked(folder / "young", young, REFERENCE), sep="\n", flush=True)
        if "shut" in given.what:
            print(f"seed {seed}, what must stay shut", *shut_of(folder), sep="\n", flush=True)
        if "live" in given.what:
            write_all(folder / "small", SMALL, draw_jobs(SMALL, seed, WARM_DAYS + given.days, SMALL_LOAD), given.days)
            print(live_of(folder / "small", seed), flush=True)


if __name__ == "__main__":
    main()
