"""Random traces, rates and shares for Shockwave's mechanism, and their comparison with the replay that is independent.

simsched runs from outside, as a user runs it: an experiment by name, files, tables of results.
"""

import json
import random
from pathlib import Path

import pytest

import simsched as sim
from simsched.errors import InputError
from tests.validation.oracles import shockwave_replay as oracle

BATCHES = {
    "ResNet-18": (16, 32, 64, 128, 256),
    "ResNet-50": (16, 32, 64, 128),
    "Transformer": (16, 32, 64, 128),
    "LM": (5, 10, 20, 40, 80),
    "Recommendation": (512, 1024, 2048, 4096, 8192),
}


#: Where the jobs of every round are, under the folder of a trace.
ROUNDS = "out/*/cells/*/shockwave-rounds.json"


def write_rates(rng: random.Random, path: Path) -> dict[tuple[str, int, int], float]:
    """Write a table of rates at which an epoch of most jobs takes seconds to minutes."""
    rates = {}
    for model, batches in BATCHES.items():
        for gpus in (1, 2, 4, 8):
            fastest = oracle.EXAMPLES[model] / 10 ** rng.uniform(0.3, 2.5)  # examples a second
            for place, batch in enumerate(batches):
                rates[model, batch, gpus] = fastest * rng.uniform(0.2, 1.0) * 1.4**place / batch
    rows = {f"('{model} (batch size {batch})', {gpus})": {"null": rate} for (model, batch, gpus), rate in rates.items()}
    path.write_text(json.dumps({"v100": rows}))
    return rates


def write_trace(rng: random.Random, rates: dict[tuple[str, int, int], float], gpus: int, path: Path) -> None:
    """Write a trace in which jobs come one by one, together and in bursts, and run for seconds to hours."""
    settings = [setting for setting in rates if setting[2] <= gpus]
    gap_s, together = rng.choice([20, 200, 1500]), rng.choice([0.0, 0.3, 0.8])
    lines, arrival_s = [], rng.choice([0.0, 0.0, 37.5])
    for _ in range(rng.choice([2, 6, 15, 40])):
        if lines and rng.random() >= together:
            arrival_s += round(rng.expovariate(1 / gap_s), rng.choice([0, 2]))
        setting = model, batch, job_gpus = rng.choice(settings)
        steps = max(1, int(rates[setting] * 10 ** rng.uniform(1, 4)))
        mode = rng.choice(["static", "accordion", "accordion", "gns", "gns"])
        if setting in oracle.SWITCHES and rng.random() < 0.1:  # the schedule ends with its first doubling, or near it
            epochs = oracle.SWITCHES[setting][0] + rng.choice([0, 1, 1, 2])
            steps = epochs * oracle.ceil_div(oracle.EXAMPLES[model], batch)
        kind = f"{model} (batch size {batch})"
        cells = (kind, "run", "here", "--steps", 1, steps, job_gpus, mode, 1, -1, 900, arrival_s)
        lines.append("\t".join(map(str, cells)))
    path.write_text("\n".join(lines) + "\n")


def differs(rng: random.Random, trace: Path, rates: Path, gpus: int, folder: Path) -> list[str] | None:
    """Return what of a trace under shares drawn at random is not as the replay says: times, ratios or rounds.

    None where there is nothing to compare: the replay never ends, and simsched must refuse to go on. A recording may
    leave out what was computed for nobody, and the times.
    """
    calls: list[dict[str, object]] = []

    def shares(now_s, jobs):
        drawn = {job.id: rng.choice([0.0, 1e-9, 1.0, 1.0, 0.25, *(rng.random() for _ in range(6))]) for job in jobs}
        calls.append({"t": now_s, "x": {str(job): share for job, share in drawn.items()}})
        return drawn

    recording = folder / "shares.json"
    played = oracle.Replay(*oracle.read(trace, rates), shares, gpus)
    try:
        expected = played.run()
    except oracle.StuckError:
        expected = None
    for_nobody, timed = rng.choice([(True, True), (False, True), (True, False), (False, False)])
    kept = [call for call in calls if call["x"] or for_nobody]
    told = [call if timed else {"x": call["x"]} for call in kept]
    recording.write_text(json.dumps({"allocations": told}))
    if expected is None:
        with pytest.raises(InputError, match=r"nothing runs and nothing is due|none has shares for job"):
            ran(trace, rates, recording, gpus, folder)
        return None
    got = ran(trace, rates, recording, gpus, folder)
    names = ("times", "ratios", "rounds")
    pairs = zip(names, (expected.jct_s, expected.rho, expected.rounds), got, strict=True)
    return [name for name, theirs, ours in pairs if theirs != ours]


def ran(trace: Path, rates: Path, recording: Path | None, gpus: int, folder: Path):
    """Run `validation/shockwave`; return completion times and printed ratios by job, and the jobs of every round."""
    run = sim.run(
        "validation/shockwave",
        {
            "workload.path": str(trace),
            "applications.path": str(rates),
            "policies.recorded.params.shares_path": recording and str(recording),
            "cluster.nodes": gpus // 4,
        },
        out=folder / "out",
        in_process=True,
    )
    jobs = run.jobs().reset_index()
    jct_s = {int(name): float(time_s) for name, time_s in zip(jobs["job_id"], jobs["jct_s"], strict=True)}
    (rounds,) = folder.glob(ROUNDS)
    printed = (rounds.parent / "shockwave-fairness.csv").read_text().splitlines()[1:]
    rho = {int(line.split(",")[0]): float(line.split(",")[2]) for line in printed}
    return jct_s, rho, json.loads(rounds.read_text())
