"""`sim.simulate` with odd arguments: it simulates, or raises one of simsched's errors."""

import math
import random
import traceback
from pathlib import Path
from typing import Any

import simsched as sim
from benchmarks.abuse.tries import Ending
from simsched.engine import EngineError
from simsched.errors import InputError

_ODD: tuple[Any, ...] = (
    None,
    True,
    "",
    "x",
    -1,
    0,
    1.5,
    2.0,
    1e308,
    10**30,
    math.inf,
    -math.inf,
    math.nan,
    [],
    {},
    object,
    "1",
    b"1",
    (1,),
    1j,
    "\ud800",
)
_POLICIES = ("fifo", "las", "srtf", "tiresias", "sjf", "smallest-first", "time-slicing", "pollux")


def attempt(folder: Path, chance: random.Random) -> Ending:
    """Call it once, with one or two odd arguments."""
    jobs = [{"num_gpus": 1 + i % 4, "submit_time_s": 10 * i, "duration_s": 60 + i} for i in range(chance.randint(1, 6))]
    if chance.random() < 0.4:
        jobs[0] = {"num_gpus": 1, "submit_time_s": 0, "application": "cifar10", "batch_size": 128}
    call: dict[str, Any] = {"jobs": jobs, "policy": chance.choice(_POLICIES), "cluster": (2, 4), "restart_delay_s": 5}
    for _ in range(chance.choice((0, 1, 1, 2))):
        where = chance.random()
        if where < 0.6 and isinstance(call["jobs"], list):
            one: Any = chance.choice(call["jobs"])
            keys = (*one, "tenant", "application", "batch_size", "deadline_s", "time_limit_s", "id", "surprise")
            one[chance.choice(keys)] = chance.choice(_ODD)
        else:
            key = chance.choice(
                ("jobs", "policy", "cluster", "restart_delay_s", "seed", "interference", "tick_s", "applications")
            )
            call[key] = chance.choice((*_ODD, (0, 4), (2, 2.0), {"nodes": 1.5, "gpus_per_node": 4}, {"groups": []}))
    try:
        found = sim.simulate(**call)
    except (InputError, EngineError):
        return Ending("refused with an error of simsched's")
    except Exception:  # noqa: BLE001 - whatever else is raised is what the attack looks for
        return Ending("", f"{call!r}: {traceback.format_exc()[-500:]}")
    if not all(map(math.isfinite, found.metrics.values())):
        return Ending("", f"{call!r}: metrics that are not finite")
    return Ending("simulated")
