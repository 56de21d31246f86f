"""Which keys name data that an experiment leaves to its user."""

import pytest

from simsched.experiment.results_name import had_to_be_given

TEXT = """
applications: {path: rates.json}
workload: {path: here.csv}
engine: {sharing: {max_jobs: 2, pairs_path: pairs.csv}, tick_s: 0}
"""


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        ("applications.path", True),
        ("engine.sharing.pairs_path", True),
        ("workload.path", False),  # the file is there
        ("engine.tick_s", False),
        ("policies.recorded.params.shares_path", False),  # the file names none
    ],
)
def test_data_that_is_not_there_has_to_be_given(tmp_path, key, expected):
    (tmp_path / "here.csv").touch()
    file = tmp_path / "a.yaml"
    file.write_text(TEXT)
    assert had_to_be_given(file, key) is expected
