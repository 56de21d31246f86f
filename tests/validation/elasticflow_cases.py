"""ElasticFlow's replay from outside, as a user runs it, and random traces and rates for it."""

import csv
import random
from pathlib import Path

import simsched as sim

MODELS = (("resnet50", 64), ("resnet50", 256), ("gpt2", 128), ("bert", 64), ("inception3", 128), ("deepspeech2", 32))
LEVELS = (1, 2, 4, 8, 16, 32, 64)
COLUMNS = (
    *("job_id", "submit_time", "iteration", "model_name", "ddl", "batch_size", "num_gpu", "duration", "best_effort"),
)


def write_rates(rng: random.Random, path: Path) -> dict[tuple[str, int, int], float]:
    """Write rates that grow with the GPUs, less and less, and fall again for some, at levels up to the batch size."""
    rates = {}
    for model, batch in MODELS:
        rate, gain = rng.uniform(1, 30), rng.uniform(1.6, 1.95)
        for level in LEVELS:
            if level <= batch:
                rates[model, batch, level] = rate
                rate *= gain
                gain = max(gain * rng.uniform(0.75, 1.0), 0.9)
    with path.open("w", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(("model_name", "batch_size", "num_gpu", "rate"))
        writer.writerows((*setting, repr(rate)) for setting, rate in rates.items())
    return rates


def write_trace(
    rng: random.Random, path: Path, jobs: int, gap_s: float, rates: dict[tuple[str, int, int], float]
) -> None:
    """Write a trace in which jobs come one by one and together, and last from a minute to some hours."""
    submit_s = 0
    with path.open("w", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(COLUMNS)
        for index in range(jobs):
            submit_s += int(rng.choice([0, 1, 1]) * rng.expovariate(1 / gap_s)) if index else 0
            model, batch = rng.choice(MODELS)
            gpus, duration_s = rng.choice((1, 1, 2, 4, 8, 16)), int(60 * 10 ** rng.uniform(0, 2.5))
            iterations = max(int(duration_s * rates[model, batch, gpus]), 1)
            deadline_s = submit_s + int(rng.choice([1.1, 1.5, 3]) * duration_s)
            writer.writerow((index, submit_s, iterations, model, deadline_s, batch, gpus, duration_s, 0))


def run(trace: Path, rates: Path, out: Path, label: str, **others):
    """Run the experiment for a label, with other changes; returns the run, and the rows of its log."""
    changes = {"workload.path": str(trace), "applications.path": str(rates), "report.reference": label, **others}
    done = sim.run("validation/elasticflow", changes, out=out / label, policies=[label], in_process=True)
    (log,) = done.folder.glob("cells/*/job.csv")
    with log.open(newline="") as stream:
        return done, list(csv.DictReader(stream))
