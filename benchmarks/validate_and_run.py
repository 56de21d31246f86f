"""Draw experiments over the whole schema, validate each, and run what `validate` lets pass: it has to run.

Usage: python -m benchmarks.validate_and_run [--experiments N] [--seed S] [--seconds-per-cell S]

Every policy comes up in turn, with parameters drawn by their types, on drawn clusters, workloads, settings of the
engine and failures. Prints how many experiments were refused, ran, or took too long, and every one that
was valid and did not run, with its YAML; the exit code is 1 if there is any.
"""

import argparse
import collections.abc
import random
import signal
import sys
import tempfile
import typing
from collections import Counter
from pathlib import Path
from typing import Any

import yaml

from simsched.errors import InputError
from simsched.experiment import look_into, make_grid, read_experiment
from simsched.experiment.running import run_to_outcome, say_nothing
from simsched.plugins import Parameter, parameters
from simsched.policy import INPUT_FILE, registry

TRACE = "submit_time,num_gpus,duration\n0,1,100\n10,2,50\n20,4,70\n30,1,400\n40,8,60\n"
LIST = "name,time,application,num_replicas,batch_size\na-0,5,cifar10,2,256\nb-1,70,ncf,1,256\nc-2,80,bert,4,48\n"
NUMBERS = (0, 1, 2, 3, 0.5, 0.25, 1.5, 4, 10, 60, 61.5, 100, 300, 3600, 1e6, -1, 1e-3, float("inf"), float("nan"))


class TooSlow(BaseException):
    """A cell takes longer than anybody waits."""


def value_of(parameter: Parameter, draw: random.Random) -> Any:
    """Draw a value of a parameter by its type; of types that are not plain ones, the default."""
    kind = parameter.annotation
    choices = [one for one in typing.get_args(kind) if one is not type(None)]
    if INPUT_FILE in choices:
        return draw.choice([None, "jobs.csv"])
    if typing.get_origin(kind) is typing.Literal:
        return draw.choice(choices)
    if choices and typing.get_origin(kind) not in (dict, collections.abc.Mapping, collections.abc.Sequence):
        kind = draw.choice(choices)
    if kind is bool:
        return draw.random() < 0.5
    if kind is int:
        return draw.choice([int(one) for one in NUMBERS if abs(one) < 1e5 and one == int(one)])
    if kind is float:
        return draw.choice(NUMBERS)
    if typing.get_origin(kind) is collections.abc.Sequence and int in choices:
        return sorted(draw.sample([1, 60, 100, 3200, 10**6], draw.randint(0, 3)))
    return None


def some(draw: random.Random, share: float = 0.3, **values: tuple[Any, ...]) -> dict[str, Any]:
    """Draw a mapping with some of its keys."""
    return {key: draw.choice(choices) for key, choices in values.items() if draw.random() < share}


def workload_of(draw: random.Random) -> dict[str, Any]:
    """Draw a workload of few jobs."""
    more = some(
        draw, 0.1, deadline_factor=(2.0, [1.5, 4.0]), deadline_share=(0.5,), guaranteed_share=(0.5, 1), seed=(0, 7),
        load=(0.5, 2.0), speedup=("linear", 0.8, [[1, 1], [2, 1.8], [4, 3.0]]), gpu_speed=({"t4": 1.0, "v100": 2.0},),
    )  # fmt: skip
    kinds: list[dict[str, Any]] = [
        {"path": "jobs.csv", "recipe": "replay", **some(draw, max_gpus=(1, 2, 4), sample=(1, 3, 9), jobs=(1, 3))},
        {"path": "jobs.csv", "recipe": "replay", **some(draw, models=("tiresias",), assign=(True,), jobs=(2, 9))},
        {"path": "jobs.csv", "recipe": "as-is"},
        {"path": "list.csv", **some(draw, 0.2, recipe=("as-is", "replay"), jobs=(1, 2))},
        {"recipe": "replay", "days": 1, "jobs": 4, **some(draw, 0.8, max_duration_s=(300,), max_gpus=(1, 2, 4))},
        {"recipe": "pollux", "jobs": draw.choice([1, 3]), "days": 28, **some(draw, configs=("tuned", "realistic"))},
        {"recipe": "sia", "jobs": 3, **some(draw, 0.7, max_gpus=(1, 2, 4), mix=("helios", "newtrace"))},
        {"recipe": "tiresias-example"},
        {"recipe": "tiresias-testbed", "jobs": 4},
        {"recipe": "gavel", "jobs": 3},
    ]
    return {**draw.choice(kinds), **more}


def cluster_of(draw: random.Random) -> dict[str, Any]:
    """Draw a small cluster."""
    types = ("t4", "t4", "t4", "v100", "k80", "a100", "rtx")
    group = {
        "nodes": draw.choice([1, 2, 4]),
        "gpus_per_node": draw.choice([1, 2, 4, 8]),
        "gpu_type": draw.choice(types),
    }
    more = some(draw, 0.1, topology=([{"level": "rack", "nodes": 2}],), power=({},), node_price_per_h=(1.5,))
    if draw.random() < 0.8:
        return group | more
    return {"groups": [group, {"nodes": 2, "gpus_per_node": 4, "gpu_type": draw.choice(types)}]} | more


def experiment_of(name: str, draw: random.Random) -> dict[str, Any]:
    """Draw an experiment with a policy."""
    kind = registry.load(name)
    drawn = {one.name: value_of(one, draw) for one in parameters(kind) if draw.random() < 0.2}
    policy: dict[str, Any] = {"name": name, "params": {key: value for key, value in drawn.items() if value is not None}}
    policy |= some(draw, 0.1, agent=({"name": "fixed"}, {"name": "goodput"}))
    sharing = some(
        draw, 0.5, max_jobs=(1, 2, 4, 16), model=("constant", "time-slicing", "stages", "gaps", "pairs", "shares"),
        factor=(0.5,), guaranteed_first=(True, False),
    )  # fmt: skip
    engine = some(
        draw, 0.15, restart_delay_s=(0, 30, 2000), interference=(0.3,), initial_nodes=(0, 1, 2), tick_s=(0, 0.001),
        node_start_s=(0, 60), kill_at_time_limit=(True,), fragmentation=(True,),
    ) | ({"sharing": sharing} if draw.random() < 0.3 else {})  # fmt: skip
    failures = some(
        draw, 0.1, node_mtbf_h=(50,), repair_median_h=(0.5,), jobs=("trace", "philly"), checkpoint_interval_s=(60, 600),
        checkpoint_cost_s=(0, 10), setting=("philly", "research-cluster"), rack_nodes=(2,), rack_mtbf_h=(90,),
    )  # fmt: skip
    return {
        "name": "drawn", "cluster": cluster_of(draw), "workload": workload_of(draw), "policies": [policy],
        "engine": engine, "failures": failures, "seeds": draw.choice([1, 2, [3]]), "report": {"plots": False},
        **some(draw, 0.1, losses=(True,), tenants=({"a": {}},), applications=({"extra_types": "sia"},)),
    }  # fmt: skip


def outcome_of(path: Path, out: Path) -> str:
    """Validate an experiment and run it; returns `refused`, `ran`, `too slow`, or what went wrong."""
    try:
        look_into(read_experiment(path))
    except InputError:
        return "refused"
    try:
        tasks = make_grid(read_experiment(path)).tasks
    except InputError as error:
        return f"valid, and run refuses: {error}"
    for task in tasks:
        outcome = run_to_outcome(task, out, {}, say_nothing)
        if outcome.error:
            return f"valid, and a cell fails: {outcome.error}"
    return "ran"


def _raise_too_slow(*_: object) -> None:
    raise TooSlow


def main() -> None:
    """Draw, validate, run, compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--experiments", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds-per-cell", type=int, default=10)
    given = parser.parse_args()
    signal.signal(signal.SIGALRM, _raise_too_slow)
    names = registry.names()
    counts: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "jobs.csv").write_text(TRACE)
        (folder / "list.csv").write_text(LIST)
        for number in range(given.experiments):
            drawn = experiment_of(names[number % len(names)], random.Random(f"{given.seed} {number}"))
            path = folder / "drawn.yaml"
            path.write_text(yaml.safe_dump(drawn))
            signal.alarm(given.seconds_per_cell)
            try:
                outcome = outcome_of(path, folder / "out")
            except TooSlow:
                outcome = "too slow"
            finally:
                signal.alarm(0)
            counts[outcome.partition(":")[0]] += 1
            if outcome not in ("refused", "ran", "too slow"):
                print(
                    f"{number}: {outcome}\n  {yaml.safe_dump(drawn, default_flow_style=True, width=10**6)}", flush=True
                )
    print(dict(sorted(counts.items())))
    sys.exit(any(outcome.startswith("valid") for outcome in counts))


if __name__ == "__main__":
    main()
