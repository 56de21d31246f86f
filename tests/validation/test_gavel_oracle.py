"""simsched's `validation/gavel` from outside against the independent replay of Gavel's rounds, on random rates.

Jobs are drawn by either from the same seed, so that the generator is held too. The policies are those that need no
solver: every completion time is equal.
"""

import json
import random
from itertools import islice, repeat

import pytest

import simsched as sim
from tests.validation.oracles import gavel_replay as oracle


def write_rates(rng, path):
    """Write a table with a rate above zero for every model, type and number of GPUs."""
    table = {gpu_type: {} for gpu_type in oracle.TYPES}
    for name in oracle.TEMPLATES:
        single = name.startswith(("Recommendation", "A3C", "CycleGAN"))
        for gpus in (1,) if single else (1, 2, 4, 8):
            fastest = 10 ** rng.uniform(-1, 2) * gpus**0.8
            for gpu_type, part in zip(oracle.TYPES, (rng.uniform(0.05, 1.5), rng.uniform(0.3, 2.3), 1.0), strict=True):
                table[gpu_type][f"('{name}', {gpus})"] = {"null": fastest * part}
    path.write_text(json.dumps(table))
    return oracle.read_rates(path)


def by_replay(rates, seed, name, jobs, jobs_per_hour, multi_gpu, gpus):
    times = oracle.arrivals(seed, jobs_per_hour, 0) if jobs_per_hour else repeat(0.0)
    drawn = islice(zip(times, oracle.drawn_jobs(rates, seed, multi_gpu=multi_gpu), strict=False), jobs)
    coming = (oracle.Job(i, time_s, *one) for i, (time_s, one) in enumerate(drawn))
    return oracle.replay(seed, name, coming, gpus).run()


def by_simsched(path, folder, label, seed, jobs, jobs_per_hour, multi_gpu, gpus):
    groups = [
        {"nodes": count, "gpus_per_node": 1, "gpu_type": gpu_type}
        for gpu_type, count in zip(oracle.TYPES, gpus, strict=True)
    ]
    changes = {
        "applications.path": str(path),
        "workload.jobs": jobs,
        "workload.jobs_per_hour": jobs_per_hour,
        "workload.multi_gpu": multi_gpu,
        "seeds": [seed],
        "cluster.groups": groups[::-1],
    }
    table = sim.run("validation/gavel", changes, out=folder, policies=[label]).jobs().reset_index()
    return dict(zip(table["job_id"].astype(int), table["jct_s"].astype(float), strict=True))


@pytest.mark.parametrize(("label", "name"), [("fifo", "fifo"), ("fifo-aware", "fifo-perf")])
def test_queues_end_every_job_when_the_replay_says(tmp_path, label, name):
    compared = 0
    for number in range(10):
        rng, folder = random.Random(number), tmp_path / str(number)
        folder.mkdir()
        rates = write_rates(rng, folder / "rates.json")
        case = (
            rng.choice([5, 20, 40]),
            rng.choice([0, 2, 20]),
            rng.random() < 0.6,
            [rng.choice([8, 12]) for _ in "123"],
        )
        seed = rng.randrange(1000)
        played = by_replay(rates, seed, name, *case)
        if played.deserted:
            continue
        got = by_simsched(folder / "rates.json", folder / "out", label, seed, *case)
        ended = {job: jct_s for job, jct_s in played.jct_s.items() if jct_s is not None}
        assert {job: got[job] for job in ended} == pytest.approx(ended, abs=1e-6, rel=0), f"number {number}"
        compared += 1
    assert compared >= 6
