"""Hold hierarchical fairness against the 144 vectors of Gavel's Figure 11, and check what every solution must keep.

Usage: python benchmarks/hierarchical_vectors.py RATES.json VECTORS.json

RATES.json is Gavel's simulation_throughputs.json. VECTORS.json has the notebooks' shares: by notebook ("13" to "16")
and mode ("perf", "agnostic") 18 vectors, for 1 to 18 jobs. Prints, by notebook and mode, on how many instances our
shares equal the published to three digits, how many published vectors leave room to raise somebody without lowering
anybody by more than a thousandth, on how many of these exact fractions prove it for every vector that is printed so,
and how many of ours break an invariant.
"""

from __future__ import annotations

import argparse
import json
import random
from fractions import Fraction
from pathlib import Path

import numpy as np
import numpy.typing as npt

from simsched.threads import one_thread_each
from simsched.toolkit.programs import Entities, ShareProblem, total_throughput, water_filling
from simsched.workload.gavel import TEMPLATES, read_rates

TYPES = ["k80", "p100", "v100"]
JOBS = 18
#: Notebooks with jobs of random rates; the others draw jobs of the table of rates.
RANDOM_RATES = ("13", "15")
#: Notebooks in which jobs inside an entity share by weight; in the others they queue.
FAIR = ("13", "14")

#: By how much more than they print jobs are to get where they can, so that rounding to fractions costs nobody anything.
_MARGIN = Fraction(1, 10**6)
_NOTHING = Fraction(0)

Floats = npt.NDArray[np.float64]


def instance(rates: object, notebook: str, mode: str, jobs: int) -> tuple[ShareProblem, Entities]:
    """Return the instance with the first so many jobs: entities of six jobs with weights 1, 2 and 3, 3 GPUs a type."""
    rng = random.Random(0)
    if notebook in RANDOM_RATES:
        table = [[rng.random() for _ in TYPES] for _ in range(JOBS)]
    else:
        table = [rates.row((rng.choice(TEMPLATES), 1), TYPES) for _ in range(JOBS)]  # type: ignore[attr-defined]
    fair = notebook in FAIR
    weights = np.array([job % 2 + 1.0 if fair else 1.0 for job in range(jobs)])
    problem = ShareProblem(np.array(table[:jobs]), np.ones(jobs, int), np.array([3, 3, 3]), weights)
    rules = ["fairness" if fair else "fifo"] * 3
    entities = Entities(np.arange(jobs) // 6, np.array([1.0, 2.0, 3.0]), rules)  # type: ignore[arg-type]
    return problem if mode == "perf" else problem.agnostic(), entities


def can_be_raised(problem: ShareProblem, got: Floats, slack: float) -> bool:
    """Tell whether the sum of the relative rates can grow while nobody's falls; False where `got` is not feasible."""
    relative = ShareProblem(
        problem.throughput / problem.proportional_rate()[:, None], problem.scale_factor, problem.num_gpus
    )
    least = got * (1 - slack)
    better = relative.rates(total_throughput(relative, least_rate=least))
    if (better < least - 1e-6).any():
        return False
    return bool(better.sum() > got.sum() * (1 + 2 * slack) + 1e-3)


def provably_raised(problem: ShareProblem, printed: list[float]) -> bool:
    """Tell whether shares in exact fractions give somebody more, and nobody less, than any vector printed so."""
    room, table = problem.num_gpus, problem.throughput
    if (table == 1).all():  # GPU types that are all alike are one
        room, table = room.sum(keepdims=True), table[:, :1]
    rates = [[Fraction(rate) for rate in row] for row in table.tolist()]
    usual = [sum((rate * int(gpus) for rate, gpus in zip(row, room, strict=True)), _NOTHING) for row in rates]
    rates = [[rate * int(room.sum()) / mean for rate in row] for row, mean in zip(rates, usual, strict=True)]
    # Printed are three digits; no job has more than all its time on its best type.
    theirs = [min(Fraction(value) + Fraction(1, 2000), max(row)) for value, row in zip(printed, rates, strict=True)]
    least = np.array([float(min(value * (1 + _MARGIN), max(row))) for value, row in zip(theirs, rates, strict=True)])
    relative = ShareProblem(np.array(rates, dtype=float), problem.scale_factor, room)
    shares = [[_below(share) for share in row] for row in total_throughput(relative, least_rate=least).tolist()]
    if any(sum(row) > 1 for row in shares) or any(
        sum(column) > int(gpus) for column, gpus in zip(zip(*shares, strict=True), room, strict=True)
    ):
        return False
    got = [
        sum((rate * share for rate, share in zip(*both, strict=True)), _NOTHING)
        for both in zip(rates, shares, strict=True)
    ]
    pairs = list(zip(got, theirs, strict=True))
    return all(mine >= value for mine, value in pairs) and any(mine > value for mine, value in pairs)


def _below(share: float) -> Fraction:
    """Return a fraction a little below a share, but all of a whole one."""
    return Fraction(1) if share == 1 else Fraction(max(round(share * 10**8) - 2, 0), 10**8)


def broken(problem: ShareProblem, entities: Entities, got: Floats, *, fair: bool) -> bool:
    """Tell whether shares break an invariant: Pareto, ratios of entities and jobs, or the order in a queue."""
    if can_be_raised(problem, got, 1e-7):
        return True
    if fair:
        due = problem.weights * entities.weights[entities.member]
        return len(got) == JOBS and not np.allclose(got / due, got[0] / due[0], rtol=1e-5)
    for member in range(entities.member.max() + 1):
        served = np.flatnonzero(got[entities.member == member] > 1e-6)
        if list(served) != list(range(len(served))):
            return True
    return False


def main() -> None:
    """Print a row for each notebook and mode, and the sums."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rates", type=Path)
    parser.add_argument("vectors", type=Path)
    given = parser.parse_args()
    one_thread_each()
    rates, published = read_rates(given.rates), json.loads(given.vectors.read_text(encoding="utf-8"))
    print("notebook mode vectors equal published_can_be_raised provably invariants_broken")
    total = np.zeros(5, dtype=int)
    for notebook in ("13", "14", "15", "16"):
        for mode in ("perf", "agnostic"):
            row = np.zeros(5, dtype=int)
            for jobs in range(1, JOBS + 1):
                problem, entities = instance(rates, notebook, mode, jobs)
                got = problem.rates(water_filling(problem, entities)) / problem.proportional_rate()
                theirs = np.array(published[notebook][mode][jobs - 1])
                equal = bool(np.abs(got - theirs).max() < 6e-4)
                raised = not equal and can_be_raised(problem, theirs, 1e-3)
                proven = raised and provably_raised(problem, published[notebook][mode][jobs - 1])
                row += [1, equal, raised, proven, broken(problem, entities, got, fair=notebook in FAIR)]
            print(notebook, mode, *row)
            total += row
    print("all all", *total)


if __name__ == "__main__":
    main()
