"""What the folder of a run is called, and which keys name data that an experiment leaves to its user."""

import re

import pytest

from simsched.experiment.results_name import had_to_be_given, results_name
from simsched.experiment.validation import read_experiment

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


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        (["seeds=3"], r"a--seeds=3"),
        (["policies=[{name: fifo}, {name: srtf}]"], r"a--policies=name,fifo,name,srtf"),
        (["policies=[fifo, srtf]"], r"a--policies=fifo,srtf"),
        (
            ["policies=[{name: fifo, label: the first}, {name: srtf, label: the second}]"],
            r"a--policies=.{51}--[0-9a-f]{6}",
        ),
        (["workload.path=here.csv"], r"a--path=here.csv"),
        (["workload.path={}/there.csv"], r"a--path=there--[0-9a-f]{6}"),
    ],
)
def test_a_folder_is_named_by_what_was_changed(tmp_path, changes, expected):
    for name in ("here.csv", "there.csv", "mine.csv"):
        (tmp_path / name).touch()
    file = tmp_path / "a.yaml"
    file.write_text("name: a\nworkload: {path: mine.csv, recipe: replay}\npolicies: [{name: tiresias}]\n")
    experiment = read_experiment(file, [change.replace("{}", str(tmp_path)) for change in changes])
    assert re.fullmatch(expected, results_name(experiment))


def test_files_of_the_same_name_have_folders_of_their_own(tmp_path):
    (tmp_path / "mine.csv").touch()
    file = tmp_path / "a.yaml"
    file.write_text("name: a\nworkload: {path: mine.csv, recipe: replay}\npolicies: [{name: tiresias}]\n")
    names = {results_name(read_experiment(file, [f"workload.path={place}/jobs.csv"])) for place in ("one", "two")}
    assert len(names) == 2
