"""Experiments are found by path, by name, or by a name without its folder where that is enough."""

from __future__ import annotations

import pytest

from simsched.errors import InputError
from simsched.experiment.results_name import find_experiment, shipped_experiments


def test_the_folder_may_be_left_out() -> None:
    assert find_experiment("table2") == find_experiment("pollux/table2") == shipped_experiments()["pollux/table2"]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("fairness", "several shipped experiments have that name; use one of pollux/fairness, themis/fairness"),
        ("quikstart", "there is no such file, and no shipped experiment of that name; did you mean 'quickstart'?"),
        ("polux/table2", "did you mean 'pollux/table2'?"),
    ],
)
def test_what_is_not_one_experiment_is_refused(name: str, said: str) -> None:
    with pytest.raises(InputError, match="experiment") as refused:
        find_experiment(name)
    assert said in str(refused.value)


def test_a_folder_is_no_experiment(tmp_path) -> None:
    with pytest.raises(InputError, match="is a folder, not an experiment file"):
        find_experiment(str(tmp_path))
