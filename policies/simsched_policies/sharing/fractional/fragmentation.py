"""How much of what is free on a node the usual jobs could not use: the measure of FGD, on GPUs alone.

Source: Weng et al., "Beware of Fragmentation" (ATC'23), section 3. Deviations: the usual jobs are those that have
come so far, and one that wants more GPUs than a node has wants all of it here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from simsched.model import SLACK, usual_requests


class UsualJobs:
    """The most frequent requests so far: GPUs, the part wanted of each, and the share of jobs that want this."""

    def __init__(self) -> None:
        """Begin with none."""
        self._counts: Counter[tuple[int, float]] = Counter()
        self._classes: list[tuple[int, float, float]] | None = None

    def note(self, gpus: int, part: float) -> None:
        """Count a job in."""
        self._counts[gpus, part] += 1
        self._classes = None

    def classes(self) -> Sequence[tuple[int, float, float]]:
        """Return the most frequent requests, until they are 95 % of all, with shares that add up to 1."""
        if self._classes is None:
            self._classes = [(gpus, part, share) for (gpus, part), share in usual_requests(self._counts)]
        return self._classes

    def unusable(self, left: Sequence[float], size: int) -> float:
        """Return how much of what is left of a node's GPUs a usual job cannot use, in GPUs, on average.

        `left` is what is left of each GPU of a node of `size`. All counts for a job that does not fit on the node, for
        others the GPUs of which less is left than they want.
        """
        lost, total = 0.0, sum(left)
        for gpus, part, share in self.classes():
            fitting = [one for one in left if one + SLACK >= part]
            lost += share * (total - sum(fitting) if len(fitting) >= min(gpus, size) else total)
        return lost

    def growth(self, left: Sequence[float], taken: Sequence[float], part: float, size: int) -> float:
        """Return by how much that grows when a job takes `part` of GPUs of which `taken` is left."""
        after = list(left)
        for one in taken:
            after.remove(one)
            after.append(one - part)
        return self.unusable(after, size) - self.unusable(left, size)
