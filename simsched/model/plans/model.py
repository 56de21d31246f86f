"""What is known of a large model: its shape, and the step times of its plans on the measured GPU types."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from simsched.model.placement import Site, Tier
from simsched.model.plans.hardware import Hardware
from simsched.model.plans.legality import legal
from simsched.model.plans.plan import ModelShape, Plan
from simsched.model.plans.search import Ranked, best_plan
from simsched.model.plans.step_parts import StepParts, step_time

CHECKPOINT_BYTES = 13  # per parameter (Nemotron-4 15B and 340B: 204 GB and 4.4 TB)


@dataclass(frozen=True)
class PlannedModel:
    """A model that trains with plans at a global batch (sequences), on GPU types with known step times.

    `storage_bandwidth` is the rate at which a job writes and reads checkpoints, bytes/s; `beyond` says by GPU type how
    the shape lies outside the steps to which its hardware is fitted. Answers are cached.
    """

    name: str
    shape: ModelShape
    hardware: Mapping[str, Hardware] = field(hash=False)
    global_batch: int
    storage_bandwidth: float
    beyond: Mapping[str, str] = field(default_factory=dict, compare=False)
    _best: dict[tuple[Site, int], Ranked | None] = field(default_factory=dict, repr=False, compare=False)
    _parts: dict[tuple[Plan, Site, int], StepParts] = field(default_factory=dict, repr=False, compare=False)

    @cached_property
    def gpu_types(self) -> tuple[str, ...]:
        """List the GPU types on which its speed is known, sorted."""
        return tuple(sorted(self.hardware))

    def node_gpus(self, gpu_type: str) -> int:
        """Return the GPUs per measured node; raises `ValueError` for an unknown type."""
        return self.on(gpu_type).node_gpus

    @cached_property
    def checkpoint_bytes(self) -> float:
        """Return the size of a checkpoint."""
        return CHECKPOINT_BYTES * self.shape.parameters

    @property
    def replan_s(self) -> float:
        """Return the seconds of a change of plan or placement, which writes and reads a checkpoint."""
        return 2 * self.checkpoint_bytes / self.storage_bandwidth

    def on(self, gpu_type: str) -> Hardware:
        """Return the hardware of a GPU type; raises `ValueError` for an unknown type."""
        if gpu_type not in self.hardware:
            raise ValueError(
                f"how fast {self.name} trains on '{gpu_type}' is not known, only on {sorted(self.hardware)}"
            )
        return self.hardware[gpu_type]

    def best(self, site: Site, global_batch: int = 0) -> Ranked:
        """Return the fastest plan on a site, which need not take all its GPUs.

        Raises `ValueError` if no plan fits.
        """
        batch = global_batch or self.global_batch
        if (site, batch) not in self._best:
            hardware, tiers = self.on(site.gpu_type), self._tiers(site)
            tried = (
                best_plan(self.shape, hardware, site.gpus, batch, tiers, at_least=most)
                for most in (site.gpus // 2 + 1, 1)
            )
            self._best[site, batch] = next((one for one in tried if one is not None), None)
        found = self._best[site, batch]
        if found is None:
            raise ValueError(f"no plan of {self.name} fits {site.gpus} GPUs of {site.gpu_type} at a batch of {batch}")
        return found

    def refusal(self, plan: Plan, gpu_type: str, gpus: int, global_batch: int = 0) -> str | None:
        """Return why a plan cannot run on `gpus` GPUs of a type, None if it can; it may leave some of them idle."""
        if plan.gpus > gpus:
            return f"it takes {plan.gpus} GPUs, not {gpus}"
        return legal(self.shape, self.on(gpu_type), plan, plan.gpus, global_batch or self.global_batch)

    def parts(self, plan: Plan, site: Site, global_batch: int = 0) -> StepParts:
        """Return the seconds of a step by part; raises `ValueError` with the reason if the plan cannot run there."""
        batch = global_batch or self.global_batch
        found = self._parts.get((plan, site, batch))
        if found is None:
            reason = legal(self.shape, self.on(site.gpu_type), plan, min(plan.gpus, site.gpus), batch)
            if reason is not None:
                raise ValueError(f"plan '{plan}' of {self.name} cannot run: {reason}")
            found = self._parts[plan, site, batch] = self.modelled(plan, site, batch)
        return found

    def modelled(self, plan: Plan, site: Site, global_batch: int = 0) -> StepParts:
        """Return the seconds of a step by part, for a plan that is known to run."""
        batch = global_batch or self.global_batch
        return step_time(self.shape, self.on(site.gpu_type), plan, batch, self._tiers(site))

    def _tiers(self, site: Site) -> tuple[Tier, ...]:
        return site.tiers or self.on(site.gpu_type).tiers(site.shape)
