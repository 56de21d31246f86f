"""Random experiments: each is valid and runs, or is refused with a message."""

import json
import random
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

from benchmarks.abuse.command import TRACE, TooSlowError, here

_LONGEST_S = 60
POLICIES = (
    "fifo",
    "srtf",
    "sjf",
    "las",
    "tiresias",
    "tiresias-g",
    "time-slicing",
    "yarn-cs",
    "smallest-first",
    "pollux",
)
ODD: tuple[Any, ...] = (
    None, True, "", "x", -1, 0, 0.5, 1e-300, 1e300, 10**19, [], {}, [1, 1], {"a": {"b": [None]}}, "\u0007", "../..",
    "=1+1", "/dev/null",
)  # fmt: skip


def experiment(chance: random.Random) -> dict[str, Any]:
    """Draw an experiment that is right in most of its keys."""
    names = chance.sample(POLICIES, chance.randint(1, 3))
    made: dict[str, Any] = {
        "name": "fuzz",
        "cluster": {"nodes": chance.randint(1, 5), "gpus_per_node": chance.choice([1, 2, 4, 8])},
        "workload": {"path": "jobs.csv", "recipe": "replay", "sample": chance.randint(1, 12)},
        "engine": {"restart_delay_s": chance.choice([0, 1, 30, 600]), "interference": chance.choice([0, 0.3])},
        "policies": [{"name": name, "params": {}} for name in names],
        "seeds": chance.randint(1, 2),
        "report": {"plots": False},
    }
    if chance.random() < 0.3:
        made["sweep"] = {"engine.restart_delay_s": [5, chance.choice([5, 60])]}
    for _ in range(chance.choice([0, 0, 1, 1, 2])):
        section = made[chance.choice(sorted(made))]
        where: Any = chance.choice(section) if isinstance(section, list) and section else section
        where = where if isinstance(where, dict) and where else made
        where[chance.choice([*sorted(where), "surprise"])] = chance.choice(ODD)
    return made


def attack(folder: Path, rounds: int, chance: random.Random) -> list[str]:
    """Write, validate and run experiments; returns what broke."""
    (folder / "jobs.csv").write_text(TRACE)
    broken = []
    endings: Counter[tuple[int, int]] = Counter()
    for number in range(rounds):
        text = json.dumps(experiment(chance))
        (folder / "fuzz.yaml").write_text(text)
        out = f"out{number}"
        try:
            checked = here(folder, "validate", "fuzz.yaml", seconds=_LONGEST_S)
            done = here(folder, "run", "fuzz.yaml", "--out", out, "-j", "1", "--json", seconds=_LONGEST_S)
        except TooSlowError:
            broken.append(f"{text}: not done after {_LONGEST_S} s of CPU")
            continue
        shutil.rmtree(folder / out, ignore_errors=True)
        endings[checked.returncode, done.returncode] += 1
        said = checked.stderr + done.stderr
        if number % 50 == 49:
            print(f"fuzz: {number + 1} tried, {len(broken)} broken", flush=True)
        if "Traceback" in said or "internal error" in said:
            broken.append(f"{text}: {said.strip().splitlines()[-1]}")
        elif checked.returncode not in (0, 2) or (checked.returncode == 2) != (done.returncode == 2):
            broken.append(f"{text}: validate says {checked.returncode}, run {done.returncode}")
        elif done.returncode == 0:
            json.loads(done.stdout)
    refused = sum(count for (checked, _), count in endings.items() if checked == 2)
    failed = sum(count for (_, done), count in endings.items() if done == 1)
    print(f"fuzz: {refused} refused, {endings[0, 0]} run, {failed} valid ones failed in a cell")
    return broken
