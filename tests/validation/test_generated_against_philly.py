"""Generated jobs against Philly's own, as the Pollux recipe sees them; skipped where Philly is absent."""

import numpy as np
import pandas as pd
import pytest

from simsched.workload.generator import GeneratorOptions, stretch_of
from simsched.workload.readers import read_trace
from simsched.workload.recipes.pollux import PolluxRecipe, eligible
from simsched.workload.recipes.recipe import size_class_of

CLASSES = ("S", "M", "L", "XL")


def seen(trace):
    table = pd.DataFrame(dict(eligible(trace, PolluxRecipe())))
    return table.assign(size=size_class_of(table["gpu_time_s"].to_numpy()), hour=table["time_s"] // 3600)


@pytest.fixture(scope="module")
def philly(shared):
    return seen(read_trace(shared / "philly" / "philly.csv"))


@pytest.fixture(scope="module")
def generated():
    # Two years, so that single giant batches weigh little.
    return pd.concat([seen(stretch_of(GeneratorOptions(days=364), seed)) for seed in (1, 2)], ignore_index=True)


def apart(one, other):
    """Return the total variation distance of two samples."""
    shares = [values.value_counts(normalize=True) for values in (one, other)]
    return float(shares[0].sub(shares[1], fill_value=0).abs().sum() / 2)


def test_classes_come_in_phillys_proportions(philly, generated):
    shares, own = (table["size"].value_counts(normalize=True) for table in (generated, philly))
    for name in CLASSES:
        assert shares[name] == pytest.approx(own[name], rel=0.15)


@pytest.mark.parametrize(("name", "most"), [("S", 0.1), ("M", 0.16), ("L", 0.1), ("XL", 0.08)])
def test_each_class_has_phillys_hours(philly, generated, name, most):
    # The first 40 days of Philly are 0.18 to 0.24 from the last 40.
    assert apart(generated["hour"][generated["size"] == name], philly["hour"][philly["size"] == name]) < most


def test_no_hour_of_the_window_holds_a_class(generated):
    for name in CLASSES:
        assert generated["hour"][generated["size"] == name].value_counts(normalize=True).max() < 0.3


@pytest.mark.parametrize("name", CLASSES)
def test_each_class_has_phillys_gpus_and_durations(philly, generated, name):
    own, made = (table[table["size"] == name] for table in (philly, generated))
    assert apart(own["num_gpus"], made["num_gpus"]) < 0.1
    levels = np.linspace(0.05, 0.95, 19)
    expected = np.quantile(own["duration_s"], levels)
    reached = [(made["duration_s"] <= value).mean() for value in expected]
    assert np.abs(reached - levels).max() < 0.1
