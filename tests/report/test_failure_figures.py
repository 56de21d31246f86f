"""The figure of the checkpoint interval."""

from math import exp

import pandas as pd
import pytest

from simsched.report.figures.purposes import checkpoint_interval, daly_s, young_s


def test_the_optima_are_those_published():
    assert young_s(14_400, 30) == pytest.approx(929.5, abs=0.1)
    # The minimum of exp((tau + cost) / mtbf) - 1 over tau lies where (1 - tau / mtbf) exp((tau + cost) / mtbf) = 1.
    best = daly_s(14_400, 30)
    assert (1 - best / 14_400) * exp((best + 30) / 14_400) == pytest.approx(1, abs=1e-5)
    assert daly_s(10, 30) == 10


def test_the_curve_and_the_optima_are_drawn():
    rows = [("fifo", "fifo", "effective_training_ratio", "share", tau, 0.9, 0.8, 1.0, 4, None) for tau in (120, 900)]
    columns = ["line", "policy", "metric", "unit", "value", "mean", "low", "high", "seeds", "published"]
    physics = {"mtbf_s": 14_400, "cost_s": 30, "restart_s": 60}
    figure, _ = checkpoint_interval(pd.DataFrame(rows, columns=columns), physics, title="t")
    labels = [line.get_label() for line in figure.axes[0].lines if not line.get_label().startswith("_")]
    assert labels == ["fifo", "expected (Daly)", "Young: 15.5 min", "Daly: 15.2 min"]
