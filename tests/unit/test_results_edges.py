"""Small rules of the results that whole runs seldom meet."""

import numpy as np
import pandas as pd
import pytest

from simsched.results.metrics import summarise
from simsched.results.stays import node_sizes
from simsched.results.usage_metrics import _takes_parts
from simsched.results.what_was_run import _gpus
from tests.unit.test_metrics import ALLOCATIONS, JOBS


def test_nodes_that_no_interval_shows_have_a_gpu():
    assert node_sizes(None, [pd.DataFrame({"placement": ["1:3", "1:2 3:4"]})]) == [1, 3, 1, 4]


def test_groups_that_say_no_numbers_hold_no_gpus():
    assert _gpus([{"gpus_per_node": 4}, {"nodes": 2}, {"nodes": 3, "gpus_per_node": 5}, "odd"]) == 15


@pytest.mark.parametrize(("gpus", "share", "parts"), [(1, 0.5, False), (1, 0.25, True), (2, 0.25, False)])
def test_uneven_shares_of_single_gpus_are_parts(gpus, share, parts):
    intervals = {"gpus": np.array([gpus]), "neighbours": np.array(["b"]), "gpu_share": np.array([share])}
    assert _takes_parts(intervals) is parts


def test_restarts_are_counted_by_the_hour_held():
    # 4 restarts in 100 + 150 + 200 + 750 s.
    found = summarise(JOBS, ALLOCATIONS, None, 4)
    assert found["restarts_per_hour"] == pytest.approx(4 / (1200 / 3600))
