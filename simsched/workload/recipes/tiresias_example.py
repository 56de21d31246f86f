"""The worked example of Tiresias, which needs no trace (Gu et al., NSDI'19, Figure 7)."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import ClassVar

from simsched.model import JobSpec
from simsched.workload.recipes.recipe import Ingredients


@dataclass(frozen=True)
class TiresiasExampleRecipe:
    """Submit the three jobs of the worked example: 2, 1 and 2 GPUs for 2, 8 and 6 seconds, all at once."""

    needs_trace: ClassVar[bool] = False
    unread: ClassVar[Collection[str]] = ()

    def make(self, ingredients: Ingredients) -> list[JobSpec]:
        """Return the three jobs."""
        asked = [(2, 2), (1, 8), (2, 6)]
        return [JobSpec(f"J{i}", 0, gpus, duration_s=seconds) for i, (gpus, seconds) in enumerate(asked, 1)]

    def extremes(self, ingredients: Ingredients, most_gpus: int) -> list[JobSpec]:
        """Return the three jobs, which are the same under all seeds."""
        return self.make(ingredients)
