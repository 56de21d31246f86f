"""Random workloads of the Pollux artifact's applications, and what the engine and the oracle differ in."""

from __future__ import annotations

import csv
import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import simsched as sim
from tests.validation.oracles import pollux_artifact as oracle

POLICIES: dict[str, Callable[[], oracle.Tiresias | oracle.Optimus]] = {
    "tiresias": oracle.Tiresias,
    "optimus": oracle.Optimus,
}
#: More GPUs than these no job asks for.
_MOST_GPUS = 24


def write_workload(rng: random.Random, path: Path, traces: Path, most_gpus: int) -> None:
    """Draw up to thirty jobs, some submitted together, their batches measured ones or others."""
    applications = [oracle.measured_in(folder) for folder in sorted(traces.iterdir())]
    weights = [0.1 if one.name == "imagenet" else 1.0 for one in applications]
    spread_s, now_s, lines = rng.choice([20, 200, 1000]), 0, []
    for number in range(rng.choice([3, 10, 30])):
        application = rng.choices(applications, weights)[0]
        now_s += 0 if rng.random() < 0.2 else int(rng.expovariate(1 / spread_s))
        sizes = application.sizes
        batch = rng.choice(sizes) if rng.random() < 0.7 else rng.randint(sizes[0], sizes[-1])
        gpus = rng.randint(1, min(most_gpus, _MOST_GPUS, batch // application.min_local))
        if application.name == "ncf":
            batch, gpus = 32768, 1
        lines.append((f"{application.name}-{number}", now_s, application.name, gpus, batch))
    with path.open("w", newline="") as stream:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerows([("name", "time", "application", "num_replicas", "batch_size"), *lines])


@dataclass(frozen=True)
class Case:
    """A workload, and the cluster and rounds that it meets."""

    workload: Path
    traces: Path
    nodes: int
    round_s: int
    interference: float

    @classmethod
    def drawn(cls, rng: random.Random, traces: Path, folder: Path) -> Case:
        """Draw a case and write its workload into a folder."""
        nodes = rng.choice([2, 4, 16])
        write_workload(rng, folder / "workload.csv", traces, 4 * nodes)
        return cls(folder / "workload.csv", traces, nodes, rng.choice([60, 60, 45, 180]), rng.choice([0.0, 0.0, 0.25]))

    def differs(self, policy: str) -> list[str]:
        """Say which jobs do not complete after as many seconds as by the oracle."""
        jobs = oracle.read_jobs(self.workload, self.traces)
        expected = oracle.replay(
            jobs, POLICIES[policy](), nodes=self.nodes, round_s=self.round_s, interference=self.interference
        )
        settings = {
            "applications.path": str(self.traces),
            "workload.path": str(self.workload),
            "cluster.nodes": self.nodes,
            "engine.interference": self.interference,
            f"policies.{policy}.params.interval_s": self.round_s,
        }
        out = self.workload.parent / policy
        run = sim.run("validation/pollux-osdi21", settings, policies=[policy], out=out, in_process=True)
        found = run.run.cells[0].jobs.set_index("job_id")["jct_s"].to_dict()
        names = sorted(expected.keys() | found.keys())
        return [f"{job}: {expected.get(job)} s and not {found.get(job)}" for job in names
                if expected.get(job) != found.get(job)]  # fmt: skip
