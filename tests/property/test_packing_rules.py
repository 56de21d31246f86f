"""Compiled fillings against the slow oracle: every pod on the same node, and the same parts of every GPU left."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from simsched.model.cluster import Node
from simsched.model.placement import Pod
from simsched.toolkit.packing.names import RULES
from simsched.toolkit.packing.packer import Packer
from tests.validation.oracles.packing import placements

NODES = st.builds(
    lambda cpu, memory, gpus, model: Node(0, gpus, model, name="n", cpu_milli=cpu, memory_mib=memory),
    st.sampled_from([4000, 8000, 32_000, 200_000]),
    st.sampled_from([8, 64]),
    st.sampled_from([0, 1, 2, 4, 8, 12]),
    st.sampled_from(["A", "B"]),
)
SIZES = st.one_of(
    st.just((0, 0)),
    st.tuples(st.just(1), st.sampled_from([50, 100, 330, 500, 900])),
    st.tuples(st.sampled_from([1, 2, 4]), st.just(1000)),
    st.just((2, 400)),
)
PODS = st.builds(
    lambda cpu, memory, size, spec: Pod("", cpu, memory, *size, spec),
    st.sampled_from([0, 500, 1000, 4000, 9000]),
    st.sampled_from([0, 1, 4]),
    SIZES,
    st.sampled_from(["", "", "A", "A|B", "B"]),
)


@pytest.mark.parametrize("rule", RULES)
@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    nodes=st.lists(NODES, min_size=1, max_size=5).filter(lambda nodes: any(node.gpus for node in nodes)),
    kinds=st.lists(PODS, min_size=1, max_size=8),
    seed=st.integers(0, 1000),
)
def test_every_pod_goes_where_the_rules_say(rule: str, nodes: list[Node], kinds: list[Pod], seed: int) -> None:
    rng = np.random.default_rng(seed)
    pods = [kinds[i] for i in rng.integers(len(kinds), size=40)]
    draws = rng.random((40, 2))
    packer = Packer(nodes, pods, rule)
    found = packer.place(range(40), draws).tolist()
    expected, free = placements(nodes, pods, rule, draws.tolist())
    assert found == expected
    assert packer.gpu_milli == free
