"""Muri-S and Muri-L as in their artifact."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Annotated, ClassVar, Literal, cast

from simsched.arithmetic import ordered_sum
from simsched.model import Allocation, Cluster
from simsched.model.colocation import group_s
from simsched.policy import INPUT_FILE, JobView, Onto, Place, Traits, View
from simsched.policy.signals import NEXT_ARRIVAL
from simsched.toolkit.grouping import exact_matching, groups as grouping
from simsched.toolkit.grouping.groups import J
from simsched.toolkit.recording import play

from .books import ALONE, TOLERANCE_S, Account, Artifact, Jobs, first_fit
from .recorded import Matchings

#: The factor by which an iteration of a group is longer than its pipeline, by number of jobs.
_TOGETHER = {2: 1.33, 3: 1.5, 4: 1.37}
_UNMATCHED_FOUR = 1.3


@dataclass
class Muri(Artifact):
    """Muri: jobs of one size in groups of up to four, grouped and placed again at every event.

    `order` is by remaining (Muri-S) or attained (Muri-L) service. `split_slow` splits groups that are slower than their
    members in sequence (the artifact's autopack), `worst_order` takes the worst order in a group. `matchings` names a
    file of recorded matchings, in order, to use instead of computing them.
    """

    name: ClassVar[str] = "muri-artifact"
    traits: ClassVar[Traits] = replace(Artifact.traits, needs=Artifact.traits.needs | {NEXT_ARRIVAL})

    order: Literal["left", "attained"] = "left"
    matching: bool = True
    split_slow: bool = False
    worst_order: bool = False
    most_jobs: int = 4
    matchings: Annotated[str | None, INPUT_FILE] = None
    _known: dict[tuple[tuple[float, float, float], ...], float] = field(default_factory=dict, init=False, repr=False)

    def begin(self, cluster: Cluster) -> None:
        """Read the matchings, if any are given."""
        super().begin(cluster)
        self._match: grouping.Matcher = exact_matching if self.matchings is None else Matchings(self.matchings)
        self._placed: dict[tuple[str, ...], Allocation] = {}
        self._rules = grouping.Rules(sum(self._nodes), most_jobs=self.most_jobs, both_ways=True)

    def check_jobs(self, jobs: Sequence[JobView], cluster: Cluster) -> None:
        """Run all jobs in the books alone, to check that the recorded matchings belong to these jobs."""
        if self.matchings is not None:
            self.begin(cluster)
            play(self, jobs, cluster)
            cast("Matchings", self._match).refuse_more()

    def event_s(self, end_s: float, view: View) -> float:
        """Return the time of an arrival that coincides with the end, before or after it."""
        arrives_s = view[NEXT_ARRIVAL]()
        return arrives_s if abs(arrives_s - end_s) <= TOLERANCE_S else end_s

    def schedule(self, arrived: Sequence[Account], ended: Sequence[Account], now_s: float) -> Jobs:
        """Take jobs, group them, and place the groups, the largest first."""
        self._active.sort(key=self._key)
        chosen = self._groups()
        kept = grouping.placement_order(self._active, chosen, self._key, self._fits())
        self._active.sort(key=lambda account: -account.gpus)
        for account in self._active:
            account.running = False
        places: dict[tuple[str, ...], Allocation] = {}
        fit = self._fits()
        for group in kept:
            taken = fit(group[0].gpus)
            if taken:
                places[tuple(account.request.id for account in group)] = taken
                iteration_s, overhead_s = self._group_s(group), sum(account.overhead_s for account in group)
                for account in group:
                    account.run(now_s, iteration_s, overhead_s)
        jobs: Jobs = {}
        for (first, *others), place in places.items():
            restart = self._placed.get((first, *others)) != place
            jobs[first] = Place(place, restart=restart)
            jobs |= dict.fromkeys(others, Place(place, more=(Onto(first),), restart=restart))
        self._placed = places
        return jobs

    def _key(self, account: Account) -> float:
        if self.order == "attained":
            return account.executed_s * account.gpus
        if not account.executed_s:
            return account.duration_s * account.gpus
        return account.remaining * account.iteration_s * account.gpus

    def _fits(self) -> Callable[[int], Allocation]:
        return partial(first_fit, list(self._nodes), max(self._nodes))

    def _groups(self) -> list[tuple[Account, ...]]:
        fits = self._fits()
        buckets = grouping.take(self._active, lambda gpus: bool(fits(gpus)))
        if self.matching:
            made = grouping.merge_by_matching(buckets, self._rules, self._weight, self._match, _stages)
        else:
            made = merge_in_order(buckets, self._rules)
        return split_slow(made, self._group_s, lambda one: one.iteration_s) if self.split_slow else made

    def _group_s(self, group: Sequence[Account]) -> float:
        if len(group) == 1:
            return group[0].iteration_s
        stages = tuple(account.stages_s for account in group)
        known = self._known.get(stages)
        if known is None:
            factor = _UNMATCHED_FOUR if len(group) == 4 and not self.matching else _TOGETHER[len(group)]
            known = self._known[stages] = group_s(stages, worst=self.worst_order) * (factor / ALONE)
        return known

    def _weight(self, group: Sequence[Account]) -> float:
        return grouping.efficiency([sum(account.stages_s) for account in group], self._group_s(group))


def _stages(group: Sequence[Account]) -> tuple[tuple[float, float, float], ...]:
    return tuple(account.stages_s for account in group)


def merge_in_order(buckets: Mapping[int, grouping.Bucket[J]], rules: grouping.Rules) -> list[tuple[J, ...]]:
    """Merge every leader with the jobs that follow it, while the jobs taken do not fit on the cluster.

    A job that needs no merging forms a separate group, before its leader's.
    """
    required = grouping.gpus_of(buckets)
    groups: list[tuple[J, ...]] = []
    for gpus, bucket in buckets.items():
        for first in range(0, rules.most_jobs * bucket.leaders, rules.most_jobs):
            leader, *followers = bucket.jobs[first : first + rules.most_jobs]
            merged = min(len(followers), max(0, -(-(required - rules.capacity) // gpus)))
            required -= gpus * merged
            groups += [(job,) for job in followers[merged:]]
            groups.append((leader, *followers[:merged]))
    return groups


def split_slow(
    groups: Iterable[tuple[J, ...]], together_s: Callable[[tuple[J, ...]], float], alone_s: Callable[[J], float]
) -> list[tuple[J, ...]]:
    """Undo the groups that are slower than their members one after the other ("autopack")."""
    kept: list[tuple[J, ...]] = []
    for group in groups:
        if together_s(group) / ordered_sum(alone_s(job) for job in group) > 1:
            kept += [(job,) for job in group]
        else:
            kept.append(group)
    return kept
