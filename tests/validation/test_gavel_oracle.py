"""simsched's `validation/gavel` from outside against the independent replay of Gavel's rounds, on random rates.

Jobs are drawn by either from the same seed, so that the generator is held too. The policies are those that need no
solver: every completion time is equal.
"""

import json
import random
import runpy
from itertools import islice, repeat
from pathlib import Path

import pytest

import simsched as sim
from simsched.applications.catalogue import ApplicationCatalogue
from simsched.engine.options import EngineOptions
from simsched.engine.records import MemoryRecorder
from simsched.engine.simulation import simulate
from simsched.errors import InputError
from simsched.model.cluster import Cluster, NodeGroup
from simsched.model.job import JobSpec
from tests.validation.oracles import gavel_replay as oracle

#: Random workloads by number; in two of the cross-section everybody leaves, in two others jobs are given up.
NUMBERS = [0, 3, 4, 5, 6, 9]
ARTIFACT = Path(__file__).parent / "replays" / "gavel.py"


def write_rates(rng, path):
    """Write a table in which some models do not run on K80 or P100, everybody does on V100."""
    without = rng.choice([0.0, 0.0, 0.1, 0.4])
    table = {gpu_type: {} for gpu_type in oracle.TYPES}
    for name in oracle.TEMPLATES:
        single = name.startswith(("Recommendation", "A3C", "CycleGAN"))
        for gpus in (1,) if single else (1, 2, 4, 8):
            fastest = 10 ** rng.uniform(-1, 2) * gpus**0.8
            for gpu_type, part in zip(oracle.TYPES, (rng.uniform(0.05, 1.5), rng.uniform(0.3, 2.3), 1.0), strict=True):
                runs = gpu_type == "v100" or rng.random() >= without
                table[gpu_type][f"('{name}', {gpus})"] = {"null": fastest * part * runs}
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
    table = sim.run("validation/gavel", changes, out=folder, policies=[label], in_process=True).jobs().reset_index()
    times = zip(table["job_id"].astype(int), table["jct_s"].astype(float), table["status"], strict=True)
    return {job: None if status == "Cancelled" else jct_s for job, jct_s, status in times}


def differs(rng, folder, label, name):
    """Return the jobs of a random workload that do not end when the replay says, and what came up in it.

    Where the replay leaves jobs waiting for ever, simsched must refuse to go on.
    """
    rates = write_rates(rng, folder / "rates.json")
    case = (
        rng.choice([5, 20, 40]),
        rng.choice([0, 0.2, 2, 20]),
        rng.random() < 0.6,
        [rng.choice([8, 12]) for _ in "123"],
    )
    seed = rng.randrange(1000)
    played = by_replay(rates, seed, name, *case)
    seen = {"deserted": played.deserted, "given up": None in played.jct_s.values(), "stuck": bool(played.active)}
    arguments = (folder / "rates.json", folder / "out", label, seed, *case)
    if played.active:
        with pytest.raises(InputError, match="nothing runs and nothing is due"):
            by_simsched(*arguments)
        return [], seen
    got = by_simsched(*arguments)
    assert sorted(got) == sorted(played.jct_s)
    return [job for job, jct_s in played.jct_s.items() if not same(jct_s, got[job])], seen


def same(theirs, ours):
    """Return whether two times are one; None is the time of a job that was given up."""
    return theirs is ours or (None not in (theirs, ours) and abs(theirs - ours) <= 1e-6)


@pytest.mark.parametrize(("label", "name"), [("fifo", "fifo"), ("fifo-aware", "fifo-perf")])
def test_queues_end_every_job_when_the_replay_says(tmp_path, label, name):
    """Also where everybody leaves before the next job comes, and where jobs hold GPUs on which they have no rate."""
    counts = dict.fromkeys(("deserted", "given up", "stuck"), 0)
    for number in NUMBERS:
        folder = tmp_path / str(number)
        folder.mkdir()
        found, seen = differs(random.Random(number), folder, label, name)
        assert not found, f"number {number}"
        counts = {what: count + seen[what] for what, count in counts.items()}
    assert counts["stuck"] <= len(NUMBERS) / 3
    assert min(counts["deserted"], counts["given up"]) >= 2


def by_hand(tmp_path, jobs, types, **rates):
    """Run FIFO, blind to speeds, on a GPU of each type; `jobs` are steps and arrivals; return ends and states."""
    name = "A3C"
    table = {kind: {f"('{name}', 1)": {"null": rates.get(kind, 10.0)}} for kind in oracle.TYPES}
    (tmp_path / "rates.json").write_text(json.dumps(table))
    applications = ApplicationCatalogue.load(tmp_path / "rates.json")
    specs = [JobSpec(str(i), at_s, 1, name, 0, 1.0, total_steps=steps) for i, (steps, at_s) in enumerate(jobs)]
    policy = runpy.run_path(str(ARTIFACT))["ArtifactFifo"]()
    cluster, records = Cluster.of(*(NodeGroup(1, 1, kind) for kind in types)), MemoryRecorder()
    simulate(cluster, specs, applications, policy, EngineOptions(restart_delay_s=0, tick_s=0), 0, records)
    return {int(job.job_id): (job.end_time_s, job.status) for job in records.jobs}


def test_shares_are_computed_for_nobody_when_the_last_job_has_left(tmp_path):
    # At 100 s the only job ends, and shares are computed, of nobody: the next are 1,920 s later at the soonest, so that
    # the job of 500 s waits until another one comes at 2,500 s.
    jobs = [(1000, 0.0), (500, 500.0), (500, 2500.0)]
    assert by_hand(tmp_path, jobs, ["v100", "k80"]) == {0: (100.0, ""), 1: (2550.0, ""), 2: (2550.0, "")}


def test_a_job_without_a_rate_is_dropped_at_the_end_of_its_fifth_round(tmp_path):
    # Job 0 takes the V100 for ten rounds of 3,600 steps; job 1 has the K80 in five of them, and does nothing there.
    ends = by_hand(tmp_path, [(36_000, 0.0), (1000, 0.0)], ["v100", "k80"], k80=0.0)
    assert ends == {0: (3600.0, ""), 1: (1800.0, "Cancelled")}


def test_rounds_in_which_everybody_fails_take_no_time(tmp_path):
    # Job 0 fails five times at 0 s, and is gone before job 1, which has all of its rounds at 0 s, too.
    assert by_hand(tmp_path, [(1000, 0.0), (1000, 50.0)], ["k80"], k80=0.0) == {
        0: (0.0, "Cancelled"),
        1: (50.0, "Cancelled"),
    }
