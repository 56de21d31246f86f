"""Random workloads of the Pollux artifact's applications, and what the engine and the oracle differ in."""

from __future__ import annotations

import csv
import random
from pathlib import Path

import simsched as sim
from tests.validation.oracles import pollux_artifact as oracle

#: What is drawn: GPUs of a job, and epochs are as many as measured; ImageNet's jobs last for days.
_MOST_GPUS = 24


def write_workload(rng: random.Random, path: Path, traces: Path, most_gpus: int) -> None:
    """Draw up to thirty jobs, some submitted together, their batches measured ones or others."""
    applications = [oracle.Application(folder) for folder in sorted(traces.iterdir())]
    weights = [0.1 if one.name == "imagenet" else 1.0 for one in applications]
    spread_s, now_s, lines = rng.choice([20, 200, 1000]), 0, []
    for number in range(rng.choice([3, 10, 30])):
        application = rng.choices(applications, weights)[0]
        now_s += 0 if rng.random() < 0.2 else int(rng.expovariate(1 / spread_s))
        sizes = list(application.curves)
        batch = rng.choice(sizes) if rng.random() < 0.7 else rng.randint(sizes[0], sizes[-1])
        gpus = rng.randint(1, min(most_gpus, _MOST_GPUS, batch // application.min_local))
        if application.name == "ncf":
            batch, gpus = 32768, 1
        lines.append((f"{application.name}-{number}", now_s, application.name, gpus, batch))
    with path.open("w", newline="") as stream:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerows([("name", "time", "application", "num_replicas", "batch_size"), *lines])


def differs(rng: random.Random, policy: str, traces: Path, folder: Path) -> list[str]:
    """Say which jobs of a random workload do not complete after as many seconds as by the oracle."""
    nodes, round_s = rng.choice([2, 4, 16]), rng.choice([60, 60, 45, 180])
    interference = rng.choice([0.0, 0.0, 0.25])
    path = folder / "workload.csv"
    write_workload(rng, path, traces, 4 * nodes)
    rules = {"tiresias": oracle.Tiresias, "optimus": oracle.Optimus}[policy]()
    expected = oracle.replay(
        oracle.read_jobs(path, traces), rules, nodes=nodes, round_s=round_s, interference=interference
    )
    settings = {
        "applications.path": str(traces),
        "workload.path": str(path),
        "cluster.nodes": nodes,
        "engine.interference": interference,
        f"policies.{policy}.params.interval_s": round_s,
    }
    run = sim.run("validation/pollux-osdi21", settings, policies=[policy], out=folder / "out", in_process=True)
    found = run.jobs()["jct_s"].droplevel([name for name in run.jobs().index.names if name != "job_id"]).to_dict()
    return [f"{job}: {expected.get(job)} s and not {found.get(job)}" for job in sorted(expected.keys() | found.keys())
            if expected.get(job) != found.get(job)]  # fmt: skip
