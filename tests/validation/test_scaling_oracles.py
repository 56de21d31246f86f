"""Policies that rent nodes, against plain loops: or-elastic second by second, the sizing rule by trying every size."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from simsched_policies.adaptive.or_elastic import OrElastic
from simsched_policies.adaptive.pollux.autoscale import PolluxAutoscale, _Size

from simsched.engine.options import EngineOptions
from simsched.model.application import Application, BatchChoice, BatchLimits, Running
from simsched.model.cluster import Cluster
from simsched.model.job import JobRequest, JobSpec, JobTruth
from simsched.model.placement import Site
from simsched.model.tabulated import FixedDuration
from simsched.testing.builders import Applications, fresh_view, run, toy_application
from simsched.toolkit.type_pools import type_pools
from tests.validation.oracles.scaling import BATCH, Cloud, Trainer, grow_by_throughput, size_by_utility

NODES = 6


class Scaling(FixedDuration):
    """A job that sees `speed[GPUs]` examples a second on nodes of one GPU."""

    name = "scaling"

    def __init__(self, work: float, speed: Mapping[int, int]) -> None:
        super().__init__(work)
        self.speed = speed
        self.limits = BatchLimits(BATCH, BATCH * max(speed), BATCH, BATCH)

    def run(self, site: Site, batch: BatchChoice, epoch: int) -> Running:
        return Running(self.speed[site.gpus], 1.0, self.speed[site.gpus], None, None)


class Scalings:
    def __init__(self, speed: Mapping[int, int]) -> None:
        self.speed = speed

    def for_job(self, request: JobRequest, truth: JobTruth) -> Application:
        return Scaling(truth.duration_s, self.speed)


@settings(max_examples=12, deadline=None, derandomize=True)
@given(
    gains=st.lists(st.sampled_from([0, 1, 2, 5, 9]), min_size=2, max_size=4),
    drawn=st.lists(st.tuples(st.integers(0, 70), st.integers(50, 3000)), min_size=1, max_size=3),
    initial=st.integers(1, NODES),
    start_delay_s=st.sampled_from([0, 0, 4, 25]),
    restart_s=st.sampled_from([0, 3]),
    batches=st.sampled_from([0, 3, 20]),
)
def test_or_elastic_grows_as_the_oracle_does(gains, drawn, initial, start_delay_s, restart_s, batches) -> None:
    speed = {1 + i: 10 + sum(gains[:i]) for i in range(len(gains) + 1)}
    submits = np.cumsum([gap for gap, _ in drawn]).tolist()
    asked = list(zip(submits, (work for _, work in drawn), strict=True))
    specs = [JobSpec(f"j{i}", at, 1, duration_s=work) for i, (at, work) in enumerate(asked)]
    options = EngineOptions(tick_s=0, restart_delay_s=restart_s, initial_nodes=initial, node_start_s=start_delay_s)
    policy = OrElastic(interval_s=10, min_batches=batches)
    records = run(policy, specs, cluster=Cluster.uniform(NODES, 1), applications=Scalings(speed), options=options)
    expected = grow_by_throughput(
        [Trainer(at, work) for at, work in asked],
        speed,
        Cloud(NODES, set(range(initial))),
        interval=10,
        restart=restart_s,
        start_delay=start_delay_s,
        batches=batches,
        threshold=0.1,
    )
    ends = {job.job_id: job.end_time_s for job in records.jobs}
    assert [ends[spec.id] for spec in specs] == pytest.approx(expected, abs=1e-6)


class Forecast(PolluxAutoscale):
    """The sizing rule alone, with a utility that is known for each number of nodes."""

    known: tuple[float, ...] = ()

    def _forecast(self, pool, rng, nodes) -> float:
        return self.known[len(nodes)]


@settings(max_examples=25, deadline=None, derandomize=True)
@given(data=st.data())
def test_the_sizing_rule_finds_the_number_of_nodes_nearest_to_the_target(data: st.DataObject) -> None:
    falls = data.draw(st.lists(st.integers(0, 30), min_size=NODES, max_size=NODES))
    known = tuple(max(100 - sum(falls[:count]), 0) / 100 for count in range(NODES + 1))
    low, target, high = sorted(data.draw(st.tuples(*[st.integers(0, 100)] * 3)))
    band = low / 100, target / 100, high / 100
    nodes, least = data.draw(st.integers(1, NODES)), data.draw(st.integers(1, 2))
    recent = data.draw(
        st.lists(st.integers(0, 100), min_size=0, max_size=4).map(lambda found: [v / 100 for v in found])
    )
    policy = Forecast(low_utility=band[0], target_utility=band[1], high_utility=band[2], window=2, min_nodes=least)
    policy.known = known
    expected = size_by_utility(recent, nodes, NODES, known.__getitem__, band, 2, least)
    wanted = sized(policy, nodes, recent)
    # Sizes of one utility are alike to the rule, which says no more than how near the target the utility comes.
    assert known[wanted] == pytest.approx(known[expected]) or abs(known[wanted] - band[1]) == pytest.approx(
        abs(known[expected] - band[1])
    )
    if expected == nodes and (len(recent) < 2 or low / 100 <= sum(recent[-2:]) / 2 <= high / 100):
        assert wanted == nodes


def sized(policy: PolluxAutoscale, nodes: int, recent: list[float]) -> int:
    """Ask a policy that has seen these utilities, with so many nodes up, how many it wants."""
    jobs = [JobSpec("a", 0, 1, application="toy", batch_size=16)]
    view, _ = fresh_view(policy, jobs, Cluster.uniform(NODES, 1), Applications(toy_application()))
    view.up = [node < nodes for node in range(NODES)]
    pool = type_pools(view, count_down=True)[0]
    return len(policy._resize(pool, _Size(frozenset(range(nodes)), deque(recent)), np.random.default_rng(1)))
