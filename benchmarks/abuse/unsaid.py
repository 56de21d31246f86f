"""No information of a trace is ignored without a message."""

import random
import shutil
from pathlib import Path

from benchmarks.abuse.command import TooSlowError, here
from benchmarks.abuse.fuzz import LONGEST_S, fault
from benchmarks.abuse.tries import Ending
from simsched.results import read_run

_EXPERIMENT = """\
name: unsaid
cluster: {{nodes: 4, gpus_per_node: 4}}
workload: {{path: trace.csv, recipe: {recipe}{counts}}}
engine: {{restart_delay_s: 0}}
policies: [{{name: fifo}}]
report: {{plots: false}}
"""
_APPLICATIONS = ("cifar10", "ncf", "bert", "imagenet")


def attempt(folder: Path, chance: random.Random) -> Ending:
    """Create a trace with additional information, and check whether the run uses, reports or refuses it."""
    shutil.rmtree(folder / "results", ignore_errors=True)
    way = chance.choice((_durations_and_applications, _mixed_clocks, _unknown_column, _doubled_column))
    told, text, durations = way(chance)
    recipe = chance.choice(("replay", "as-is")) if way is _durations_and_applications else "replay"
    counts = ", runtime_from: duration" if durations and chance.random() < 0.5 else ""
    (folder / "trace.csv").write_text(text)
    (folder / "unsaid.yaml").write_text(_EXPERIMENT.format(recipe=recipe, counts=counts))
    try:
        done = here(folder, "run", "unsaid.yaml", "--in-process", "--json", seconds=LONGEST_S)
    except TooSlowError:
        return Ending("", f"{told}: not done after {LONGEST_S} s")
    if wrong := fault(done):
        return Ending("", f"{told}: {wrong}")
    if done.returncode:
        return Ending("refused with a message")
    if done.stderr.strip():
        return Ending("run, with a line about what is not used")
    jobs = read_run(folder / "results/unsaid").cells[0].jobs
    took = sorted(float(one) for one in jobs["end_time_s"] - jobs["start_time_s"])
    if durations and took == sorted(map(float, durations)):
        return Ending("run, with what the trace says")
    return Ending("", f"{told}, recipe {recipe}: run without a word, jobs take {took}: {text!r}")


def _durations_and_applications(chance: random.Random) -> tuple[str, str, list[int]]:
    durations = [chance.randint(10, 900) for _ in range(chance.randint(1, 5))]
    rows = [f"{60 * i},{chance.choice((1, 2))},{one},{chance.choice(_APPLICATIONS)}" for i, one in enumerate(durations)]
    return "durations and applications", "\n".join(["submit_time,num_gpus,duration,application", *rows, ""]), durations


def _mixed_clocks(chance: random.Random) -> tuple[str, str, list[int]]:
    ends = ["", "+01:00", "Z", "-05:30"]
    rows = [f"2024-03-01T0{i}:30:00{end},1,100" for i, end in enumerate(["", *chance.choices(ends[1:], k=3)])]
    chance.shuffle(rows)
    return "times with and without an offset", "\n".join(["submit_time,num_gpus,duration", *rows, ""]), []


def _unknown_column(chance: random.Random) -> tuple[str, str, list[int]]:
    name = chance.choice(("wall_limit", "deadline", "Tenant", "duration_h", "memory"))
    rows = [f"{i},1,{100 + i},{chance.randint(1, 9)}" for i in range(3)]
    return f"the column {name}", "\n".join([f"submit_time,num_gpus,duration,{name}", *rows, ""]), []


def _doubled_column(chance: random.Random) -> tuple[str, str, list[int]]:
    name = chance.choice(("duration", "num_gpus", "submit_time"))
    rows = [f"{i},1,{100 + i},{chance.randint(1, 4)}" for i in range(3)]
    return f"{name} twice", "\n".join([f"submit_time,num_gpus,duration,{name}", *rows, ""]), []
