"""Nodes with so many GPUs free are found by bits, a word for 62 of them, and are those that walking along all finds."""

import numpy as np
import pytest
from simsched_policies.adaptive.pollux.search._state import ALL, BITS, BLOCK, CLOSED, OPEN, _next, _next_from

NODES = 3 * BLOCK + 5


def test_every_power_of_two_has_a_bit_of_its_own():
    assert [BITS[2**bit % 67] for bit in range(BLOCK)] == list(range(BLOCK))


def levels_of(free, closed):
    """Return the nodes by free GPUs, all and open ones, as the search keeps them."""
    levels = np.zeros((2, free.max() + 1, 1 + -(-free.size // BLOCK)), np.int64)
    for node, level in enumerate(free):
        for which in (ALL, OPEN)[: 1 if closed[node] else 2]:
            levels[which, level, 0] += 1
            levels[which, level, 1 + node // BLOCK] += 1 << (node % BLOCK)
    return levels


@pytest.mark.parametrize("rare", [0.5, 0.99])
def test_the_next_node_is_the_one_that_walking_finds(rare):
    rng = np.random.default_rng(7)
    free = np.where(rng.random(NODES) < rare, 0, rng.integers(1, 5, NODES))
    closed = rng.random(NODES) < 0.4
    levels = levels_of(free, closed)
    for level in range(free.max() + 1):
        able = {ALL: free == level, OPEN: (free == level) & ~closed, CLOSED: (free == level) & closed}
        for which, nodes in able.items():
            for start in (*range(0, NODES, 7), BLOCK - 1, BLOCK, NODES - 1):
                after = np.flatnonzero(nodes[start:])
                assert _next(levels, which, level, start) == (start + after[0] if after.size else -1)


def test_going_round_from_a_node_passes_each_open_one_once():
    rng = np.random.default_rng(8)
    free, closed = rng.integers(0, 3, NODES), rng.random(NODES) < 0.5
    levels = levels_of(free, closed)
    for start in (0, 1, BLOCK, NODES - 1):
        found, passed = [], 0
        while (node := _next_from(levels, 2, start, passed, NODES)) >= 0:
            found.append(node)
            passed = (node - start) % NODES + 1
        around = [(start + step) % NODES for step in range(NODES)]
        assert found == [node for node in around if free[node] == 2 and not closed[node]]
