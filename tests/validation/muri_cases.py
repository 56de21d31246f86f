"""Random traces for Muri's replay, and their comparison with the oracle that is independent.

simsched runs from outside, as a user runs it: an experiment by name, files, tables of results.
"""

import csv
import json
import random
from collections.abc import Callable
from pathlib import Path

import numpy as np

import simsched as sim
from simsched.toolkit.grouping.matching import exact_matching
from tests.validation.oracles.muri import Job, read_jobs, replay_shortest, replay_tiresias
from tests.validation.oracles.muri_antman import replay_antman
from tests.validation.oracles.muri_groups import Matcher, Muri, replay_muri

MODELS = ("vgg16", "vgg19", "resnet18", "shufflenet_v2_x1_0", "bert", "gpt2", "a2c", "dqn")
COLUMNS = (
    *("job_id", "num_gpu", "submit_time", "iterations", "model_name", "batch_size", "duration", "interval"),
    *("iteration_time", "resource_time_0", "resource_time_1", "resource_time_2", "priority"),
)


def own(weights: list[list[float]]) -> list[tuple[int, int]]:
    """simsched's matching: of several that are the best, the oracle must take the one that simsched takes."""
    return [(int(left), int(right)) for left, right in exact_matching(np.array(weights))]


#: How the oracle plays what an experiment's label stands for.
REPLAYS: dict[str, Callable[[list[Job]], None]] = {
    "SRTF": lambda jobs: replay_shortest(jobs, by_service=False),
    "SRSF": lambda jobs: replay_shortest(jobs, by_service=True),
    "Tiresias-L": replay_tiresias,
    "AntMan": replay_antman,
    "Muri-L-no-matching": lambda jobs: replay_muri(jobs, Muri(least_attained=True, matcher=None)),
    "Muri-S": lambda jobs: replay_muri(jobs, Muri(least_attained=False, matcher=own)),
    "Muri-L": lambda jobs: replay_muri(jobs, Muri(least_attained=True, matcher=own, split_slow=True)),
}


def write_trace(rng: random.Random, path: Path, jobs: int, *, alike: bool = True) -> None:
    """Write a trace in which jobs come one by one, together and in bursts, and run for seconds to days.

    Times of iterations and stages are no round numbers, so that sums of floats depend on their order. Without `alike`
    no two jobs have the same, so that one matching is the best; with it some are twins, which end a moment apart. No
    time has more than fifteen digits, beyond which simsched, which keeps seconds, may find other milliseconds.
    """
    gap_ms, together = rng.choice([2_000, 60_000, 900_000]), rng.choice([0.0, 0.3, 0.8])
    sizes = rng.choice([(1, 2, 4, 8), (1, 2, 4, 8, 16, 32), (4, 8, 8, 8, 32)])
    settings = [(model, gpus, times_ms(rng)) for model in MODELS for gpus in sizes]
    submit_ms = rng.choice([0, 0, 37_500])
    iterations, iteration_ms = 0, 0.0
    with path.open("w", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(COLUMNS)
        for index in range(jobs):
            if alike and index and rng.random() < 0.25:
                iteration_ms, iterations = round(iterations * iteration_ms + rng.choice(MOMENTS_MS), 6), 1
            else:
                gap = 0 if index == 0 or rng.random() < together else int(rng.expovariate(1 / gap_ms))
                submit_ms += gap if rng.random() < 0.5 else gap // 1000 * 1000
                model, gpus, (iteration_ms, *stages_ms) = rng.choice(settings)
                if not alike:
                    iteration_ms, *stages_ms = times_ms(rng)
                duration_ms = int(10 ** rng.uniform(3.5, 7.5))
                iterations, priority = max(1, int(duration_ms / iteration_ms)), rng.randrange(2)
            cells = (index, gpus, submit_ms, iterations, model, 16, duration_ms, 0, iteration_ms, *stages_ms, priority)
            writer.writerow(cells)


#: Around the tolerances: of 1e-4 s, and of 1e-9 of a time.
MOMENTS_MS = (0.0, 1e-6, 1e-4, 0.01, 0.05, 0.09, 0.099, 0.11, 0.15)


def times_ms(rng: random.Random) -> list[float]:
    """An iteration and its stages for data, GPU and network, most of which are parts of the iteration."""
    iteration_ms = rng.choice([rng.randint(90, 1100), round(rng.uniform(20, 900), 1)])
    stages_ms = [rng.choice([round(0.1 + iteration_ms * rng.random(), 4), rng.randint(1, 90)]) for _ in range(3)]
    return [iteration_ms, *stages_ms]


def ends_by_simsched(trace: Path, out: Path, labels: tuple[str, ...]) -> dict[str, dict[int, float]]:
    """Run Muri's experiment and return for each label when each job ends."""
    changes = {"workload.path": str(trace), "report.reference": labels[0]}
    run = sim.run("validation/muri", changes, out=out, policies=labels, in_process=True)
    return {label: ends_in(run, label) for label in labels}


def ends_in(run, label: str) -> dict[int, float]:
    ends_s = run.jobs().loc[label]["end_time_s"].droplevel("seed")
    return {int(job): end_s for job, end_s in ends_s.items()}


def ends_by_oracle(trace: Path, label: str) -> dict[int, float]:
    jobs = read_jobs(trace)
    REPLAYS[label](jobs)
    return {job.id: job.end_s for job in jobs}


def any_best(rng: random.Random, made: list[list[list[int]]]) -> Matcher:
    """A matcher that takes any of the best matchings, and keeps what it did in `made`."""

    def match(weights: list[list[float]]) -> list[tuple[int, int]]:
        order = rng.sample(range(len(weights)), len(weights))
        shuffled = [[weights[left][right] for right in order] for left in order]
        pairs = sorted((order[left], order[right]) for left, right in own(shuffled))
        made.append([sorted(pair) for pair in pairs])
        return pairs

    return match


def ends_with_recorded_matchings(
    rng: random.Random, trace: Path, folder: Path, *, least_attained: bool
) -> tuple[dict[int, float], dict[int, float], list[list[list[int]]]]:
    """Have the oracle take any of the best matchings, simsched play them back, and return when each job ends under
    both, and the matchings."""
    made: list[list[list[int]]] = []
    jobs = read_jobs(trace)
    muri = Muri(least_attained=least_attained, matcher=any_best(rng, made), split_slow=least_attained)
    replay_muri(jobs, muri)
    recording = folder / "matchings.json"
    recording.write_text(json.dumps({"matchings": made}))
    params = {"matchings": str(recording)}
    if least_attained:
        params |= {"order": "attained", "split_slow": True}
    changes = {f"policies.Muri-S.params.{key}": value for key, value in params.items()}
    changes["workload.path"] = str(trace)
    run = sim.run("validation/muri-recorded", changes, out=folder / "recorded", in_process=True)
    return {job.id: job.end_s for job in jobs}, ends_in(run, "Muri-S"), made
