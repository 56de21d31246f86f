"""Searches for a priority function: a mutator proposes, the referee scores, the best goes on.

    python examples/discover/search.py --minutes 10 --workers 2

A candidate is a sum of weighted terms; the jobs with the smallest sums run. Each is written as a policy in Python and
scored by `sim.score`, the share of the way from FIFO to the certified bound, on seeds that the search sees. At the end
the best is scored again behind a wall, also on seeds that it never saw, which tells whether it overfits, and stands
beside rivals that know as little: least attained service, smallest first, and FIFO, which is 0.

The mutator is scripted. One that asks a language model fits into its place: see docs/how-to/discover.md.
"""

from __future__ import annotations

import argparse
import math
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import simsched as sim

#: What a priority may weigh, as text over the numbers of a job in TEMPLATE.
TERMS = ("log2(gpus)", "log1p(attained)", "log1p(attained / gpus)", "log1p(age)", "sqrt(age)", "gpus", "runs")
#: Policies that read no estimate of a job's duration, either; FIFO's score is 0.
RIVALS = ("las", "smallest-first")
TEMPLATE = '''"""A priority function that a search has found."""

from math import log1p, log2, sqrt
from typing import ClassVar

from simsched.policy import Decision, Policy, View
from simsched.toolkit.gang import run_in_order


class Found(Policy):
    """Runs the jobs with the smallest priorities that fit."""

    name: ClassVar[str] = "found"

    def decide(self, view: View, rng) -> Decision:
        """Order the jobs."""

        def priority(job):
            gpus, attained, age, runs = job.num_gpus, job.attained_gpu_s, job.age_s, job.running
            return {expression}

        return Decision(run_in_order(sorted(view.jobs.values(), key=priority), view))
'''


@dataclass(frozen=True)
class Candidate:
    """A priority: weights by term."""

    weights: tuple[tuple[str, float], ...]

    @property
    def expression(self) -> str:
        """The priority as Python."""
        return " + ".join(f"{weight:.3g} * {term}" for term, weight in self.weights) or "0"

    def mutated(self, chance: random.Random) -> Candidate:
        """Change, add or drop a term."""
        weights = dict(self.weights)
        term = chance.choice(TERMS)
        if term in weights and chance.random() < 0.3 and len(weights) > 1:
            del weights[term]
        elif term in weights:
            weights[term] *= math.exp(chance.gauss(0, 0.7)) * (-1 if chance.random() < 0.1 else 1)
        else:
            weights[term] = chance.choice((-1, 1)) * math.exp(chance.gauss(0, 1))
        return Candidate(tuple(sorted(weights.items())))

    def written(self, folder: Path) -> str:
        """Write the policy and return its name."""
        path = folder / "found.py"
        path.write_text(TEMPLATE.format(expression=self.expression))
        return f"{path}:Found"


@dataclass(frozen=True)
class Referee:
    """Scores policies, with everything that has been played once kept in a folder."""

    folder: Path
    division: str
    seeds: Sequence[int]
    workers: int

    def score(self, policy: str, **how: Any) -> dict[str, Any]:
        """Return what the referee says of a policy."""
        played = {"out": self.folder / "results", "workers": self.workers, "seeds": list(self.seeds), **how}
        return sim.score(policy, division=self.division, **played)


def search(referee: Referee, seed: int, until_s: float, most: int) -> tuple[Candidate, list[float]]:
    """Climb from smallest first with a little patience; return the best and the best score after each candidate."""
    chance = random.Random(seed)
    best, score, scores = Candidate((("gpus", 1.0), ("runs", -1.0))), -math.inf, list[float]()
    proposed, seen = best, set[Candidate]()
    while time.monotonic() < until_s and len(scores) < most:
        folder = referee.folder / f"candidate-{len(scores):04}"
        folder.mkdir(parents=True, exist_ok=True)
        found = referee.score(proposed.written(folder), isolated=False)["score"]  # the search wrote it itself
        if found > score:
            best, score = proposed, found
        scores.append(score)
        print(f"{len(scores):4}  {found:+.3f}  best {score:+.3f}  {proposed.expression}", flush=True)
        seen.add(proposed)
        while proposed in seen:
            proposed = best
            for _ in range(chance.choice((1, 1, 2, 3))):
                proposed = proposed.mutated(chance)
    return best, scores


def main(arguments: Sequence[str] | None = None) -> dict[str, Any]:
    """Search, and print how the best does on seeds that it never saw, beside its rivals."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--most", type=int, default=10_000, help="candidates")
    parser.add_argument("--division", default="smoke")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--unseen", type=int, nargs="+", default=[3, 4])
    parser.add_argument("--seed", type=int, default=1, help="of the mutator")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--folder", type=Path, default=Path("discovered"))
    given = parser.parse_args(arguments)
    referee = Referee(given.folder.resolve(), given.division, given.seeds, given.workers)
    best, _ = search(referee, given.seed, time.monotonic() + 60 * given.minutes, given.most)
    told = referee.score(best.written(referee.folder), unseen=given.unseen)
    print(f"\n{referee.folder / 'found.py'}: {best.expression}")
    print(f"seen seeds {told['score']:.3f}, unseen ones {told['unseen']:.3f}; {told['overfits'][0]}")
    rivals = {name: referee.score(name, seeds=given.unseen)["score"] for name in RIVALS}
    print("on the unseen seeds: " + ", ".join(f"{name} {score:.3f}" for name, score in rivals.items()))
    for line in told["lost_most"]:
        print(line)
    return {**told, "rivals": rivals, "expression": best.expression}


if __name__ == "__main__":
    main()
