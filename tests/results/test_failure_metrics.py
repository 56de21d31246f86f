"""What failures cost, on two jobs worked by hand."""

import pandas as pd
import pytest

from simsched.results.metric import Tables
from simsched.results.metrics import METRICS

#: `a` holds 2 GPUs for 100 s, of which 10 restart, 5 write checkpoints and 20 are lost; `b` one for 50 s.
JOBS = pd.DataFrame(
    {
        "start_time_s": [0, 100],
        "end_time_s": [120, 200],
        "held_s": [100, 50],
        "restart_s": [10, 10],
        "checkpoint_s": [5, 0],
        "lost_s": [20, 0],
        "lost_gpu_s": [40, 0],
        "attained_gpu_s": [200, 50],
        "failures": [2, 0],
        "attempts": [1, 4],
    }
)


@pytest.mark.parametrize(
    ("metric", "expected"),
    [
        ("lost_gpu_hours", 40 / 3600),
        ("effective_training_ratio", (65 + 40) / (120 + 100)),
        ("productive_gpus", (200 - 2 * 15 - 40 + 50 - 10) / 200),
        ("failures_met", 2),
        ("attempts_mean", 2.5),
    ],
)
def test_what_failures_cost(metric, expected):
    assert METRICS[metric].compute(Tables(JOBS, None, None, 3)) == pytest.approx(expected, rel=1e-12)
    assert METRICS[metric].compute(Tables(JOBS.drop(columns="failures"), None, None, 3)) is None


def test_a_job_that_held_nothing_did_no_work():
    idle = JOBS.assign(held_s=0, attained_gpu_s=0, lost_gpu_s=0)
    assert METRICS["productive_gpus"].compute(Tables(idle, None, None, 3)) == 0
