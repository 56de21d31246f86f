"""Models with measured plans: a table of seconds by plan and placement, with interpolation between its rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from simsched.model.placement import Shape, Site
from simsched.model.plans.model import PlannedModel, Ranked
from simsched.model.plans.plan import Plan
from simsched.model.plans.step_parts import StepParts

#: For each plan, its rows: GPUs on each node, the most first, and the seconds of a step.
PlanRows = Mapping[tuple[Plan, Shape], float]


@dataclass(frozen=True)
class TabledModel:
    """A model with plans measured on GPUs of one type; `model` is its analytic physics, None if unknown.

    A row of the table applies as is. Elsewhere the nearest row applies, scaled by the ratio of the analytic times;
    without these, seconds are linear in GPUs between rows of plans that differ only in data ranks. Only a `model`
    splits the seconds into parts; without one they all count as computation.
    """

    name: str
    gpu_type: str
    rows: PlanRows
    model: PlannedModel | None = None
    replan_s: float = 0.0

    @property
    def global_batch(self) -> int:
        """Return the sequences of a step, 0 if unknown."""
        return 0 if self.model is None else self.model.global_batch

    @property
    def beyond(self) -> Mapping[str, str]:
        """Return how the modelled times lie outside what they are fitted to; measured rows do not."""
        return {} if self.model is None else self.model.beyond

    @property
    def gpu_types(self) -> tuple[str, ...]:
        """List the GPU types on which its speed is known."""
        return (self.gpu_type,)

    def node_gpus(self, gpu_type: str) -> int:
        """Return the most GPUs per node in any row."""
        return max(shape[0] for _, shape in self.rows)

    def best(self, site: Site, global_batch: int = 0) -> Ranked:
        """Return the fastest plan on a site: among those measured there, else among all with a known time.

        Raises `ValueError` if none has one.
        """
        here = [plan for plan, shape in self.rows if shape == _key(site) and site.gpu_type == self.gpu_type]
        if not here and self.model is not None:
            here = [self.model.best(site, global_batch).plan]
        if not here:
            kinds = dict.fromkeys(replace(plan, data=1) for plan, _ in self.rows)
            ranks = [(kind, *divmod(site.gpus, kind.gpus)) for kind in kinds]
            scaled = [replace(kind, data=data) for kind, data, rest in ranks if data and not rest]
            here = [plan for plan in scaled if self.refusal(plan, site.gpu_type, site.gpus) is None]
            here = [plan for plan in here if self._between(plan, site) is not None]
        if not here:
            raise ValueError(f"no plan of {self.name} is known on {site.shape} GPUs of {site.gpu_type}")
        ranked = [Ranked(plan, self.parts(plan, site, global_batch)) for plan in here]
        return min(ranked, key=lambda one: float(one.parts.total))

    def refusal(self, plan: Plan, gpu_type: str, gpus: int, global_batch: int = 0) -> str | None:
        """Return why a plan cannot run on `gpus` GPUs of a type, None if it can."""
        if gpu_type != self.gpu_type:
            return f"its plans were measured on {self.gpu_type}, not {gpu_type}"
        if plan.gpus != gpus:
            return f"it takes {plan.gpus} GPUs, not {gpus}"
        return None if self.model is None else self.model.refusal(plan, gpu_type, gpus, global_batch)

    def parts(self, plan: Plan, site: Site, global_batch: int = 0) -> StepParts:
        """Return the seconds of a step by part; raises `ValueError` with the reason if they are unknown."""
        known = self.rows.get((plan, _key(site))) if site.gpu_type == self.gpu_type else None
        if self.model is not None:
            modelled = (self.model.parts if known is None else self.model.modelled)(plan, site, global_batch)
            factor = self._nearest_factor(plan, site, global_batch) if known is None else known / modelled.total
            scaled = {name: factor * np.asarray(part) for name, part in modelled._asdict().items()}
            return StepParts(**{name: part.tolist() for name, part in scaled.items()})
        reason = self.refusal(plan, site.gpu_type, site.gpus) if known is None else None
        seconds = self._between(plan, site) if known is None and reason is None else known
        if seconds is None:
            message = reason or f"was measured neither on {site.shape} GPUs nor on fewer and more"
            raise ValueError(f"plan '{plan}' of {self.name} cannot run: {message}")
        return StepParts(seconds, 0.0, 0.0, 0.0, 0.0, 0.0, [0.0] * len(site.tiers))

    def _nearest_factor(self, plan: Plan, site: Site, global_batch: int) -> float:
        """Return measured over modelled seconds for the row nearest to a plan on a site."""
        assert self.model is not None
        (nearest, shape), seconds = min(self.rows.items(), key=lambda row: _distance(row[0], plan, site))
        return seconds / float(self.model.modelled(nearest, Site(shape, self.gpu_type), global_batch).total)

    @cached_property
    def _by_kind(self) -> Mapping[Plan, Mapping[int, float]]:
        """The mean seconds for each number of GPUs, by plan without its data ranks, over placements."""
        found: dict[Plan, dict[int, list[float]]] = {}
        for (plan, _), seconds in self.rows.items():
            found.setdefault(replace(plan, data=1), {}).setdefault(plan.gpus, []).append(seconds)
        return {kind: {n: sum(s) / len(s) for n, s in sorted(by.items())} for kind, by in found.items()}

    def _between(self, plan: Plan, site: Site) -> float | None:
        """Interpolate the seconds between rows of plans of the same kind; None outside their range."""
        known = self._by_kind.get(replace(plan, data=1), {})
        if not known or not min(known) <= site.gpus <= max(known):
            return None
        return float(np.interp(site.gpus, list(known), list(known.values())))


#: A model with plans, analytic or tabled.
LargeModel = PlannedModel | TabledModel


def _key(site: Site) -> Shape:
    return tuple(sorted(site.shape, reverse=True))


def _distance(row: tuple[Plan, Shape], asked: Plan, site: Site) -> tuple[float, ...]:
    """Return the distance of a row from a request: the kind of plan, then ranks, GPUs and nodes, as ratios."""
    plan, shape = row
    kind = sum(getattr(plan, one) != getattr(asked, one) for one in ("recomputation", "zero", "offload"))
    ranks = sum(_factor(getattr(plan, one), getattr(asked, one)) for one in ("tensor", "pipeline", "data", "context"))
    return kind, ranks + _factor(len(shape), site.nodes), _factor(sum(shape), site.gpus)


def _factor(one: int, other: int) -> float:
    return max(one, other) / min(one, other)
