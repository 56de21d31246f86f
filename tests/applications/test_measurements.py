"""Reading folders of measurements, and refusing malformed ones."""

import shutil
from pathlib import Path

import pytest

from simsched.applications.catalogue import ApplicationCatalogue
from simsched.applications.measurements import read_application, read_folder
from simsched.errors import InputError
from simsched.model.application import BatchLimits, StepTime
from simsched.model.measured import Bounds
from simsched.model.placement import Site

PLACEMENTS = """\
placement,local_bsz,step_time,sync_time
1,4,1.0,0.1
1,16,4.0,0.1
2,4,1.5,0.5
2,16,4.5,0.5
12,4,2.0,1.0
12,16,5.0,1.0
"""
SCALABILITY = """\
num_nodes,num_replicas,local_bsz,step_time,sync_time
6,6,4,3.0,1.5
6,6,8,3.5,1.5
"""
VALIDATION = """\
progress,iteration,metric,grad_sqr,grad_var
10.0,10,0.5,1.0,2.0
20.5,20,0.6,-0.5,3.0
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    place = tmp_path / "toy"
    place.mkdir()
    (place / "placements.csv").write_text(PLACEMENTS)
    (place / "scalability.csv").write_text(SCALABILITY)
    for size in (8, 16):
        (place / f"validation-{size}.csv").write_text(VALIDATION)
    return place


def change(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))


def refusal(folder: Path) -> str:
    with pytest.raises(InputError) as caught:
        read_application(folder)
    return str(caught.value)


def test_a_folder_becomes_an_application(folder):
    app = read_application(folder)
    assert app.name == "toy"
    assert app.limits == BatchLimits(8, 16, 4, 16)
    assert app.epochs == 2
    assert app.epoch_end(1) == 20.5
    assert app.step_time(Site((2, 1), "t4"), 10) == StepTime(3.5, 1.0)
    assert (app.max_gpus, app.fixed_batch_size) == (None, None)


def test_each_subfolder_is_an_application_named_after_it(folder):
    shutil.copytree(folder, folder.parent / "other")
    (folder.parent / "notes").mkdir()
    assert list(read_folder(folder.parent)) == ["other", "toy"]


def test_what_the_measurements_do_not_say_can_be_given(folder):
    app = read_application(folder, gpu_type="v100", bounds=Bounds(max_local_bsz=8, max_gpus=1, fixed_batch_size=16))
    assert app.limits.max_local_bsz == 8
    assert (app.max_gpus, app.fixed_batch_size, app.gpu_types) == (1, 16, ("v100",))


@pytest.mark.parametrize(
    ("name", "fixed", "gpus", "local"), [("ncf", 32768, 1, 16), ("yolov3", None, None, 8), ("bert", None, None, 16)]
)
def test_published_bounds_go_by_the_name_only_where_they_are_asked_for(folder, name, fixed, gpus, local):
    folder.rename(folder.parent / name)
    plain = read_folder(folder.parent)[name]
    assert (plain.fixed_batch_size, plain.max_gpus, plain.limits.max_local_bsz) == (None, None, 16)
    app = read_folder(folder.parent, bounds="pollux-osdi21")[name]
    assert (app.fixed_batch_size, app.max_gpus, app.limits.max_local_bsz) == (fixed, gpus, local)
    with pytest.raises(InputError, match="did you mean 'pollux-osdi21'"):
        read_folder(folder.parent, bounds="polux-osdi21")


def test_the_gpu_type_of_measurements_is_the_users_to_say(folder):
    found = ApplicationCatalogue.load(folder.parent, gpu_type="v100")
    assert found.applications["toy"].gpu_types == ("v100",)


@pytest.mark.parametrize("name", ["placements.csv", "scalability.csv"])
def test_a_missing_file_is_named(folder, name):
    (folder / name).unlink()
    assert f"{folder / name}: there is no such file" in refusal(folder)


@pytest.mark.parametrize(
    ("file", "old", "new", "said"),
    [
        ("placements.csv", "sync_time", "sync", "placements.csv:1: column 'sync_time' is missing"),
        ("scalability.csv", "num_nodes", "nodes", "scalability.csv:1: column 'num_nodes' is missing"),
        ("validation-8.csv", "grad_sqr", "sqr", "validation-8.csv:1: column 'grad_sqr' is missing"),
        ("placements.csv", "1,4,1.0", "1,4,nan", "placements.csv:2: step_time is nan"),
        ("placements.csv", "1,16,4.0", "1,16,fast", "placements.csv:3: step_time is not a number: 'fast'"),
        ("placements.csv", "1,4,1.0", "1,4,0.0", "placements.csv:2: step_time must be more than 0, not 0.0"),
        ("placements.csv", "1,4,1.0,0.1", "1,4,1.0,-0.1", "placements.csv:2: sync_time must be at least 0"),
        ("placements.csv", "1,4,1.0,0.1", "1,4,1.0,1.0", "sync_time 1 must be less than step_time 1"),
        ("placements.csv", "1,4,1.0,0.1", "1,4,1.0", "placements.csv:2: has 3 fields, and the header has 4"),
        ("placements.csv", "1,4,", "1,4.5,", "local_bsz must be a whole number, not 4.5"),
        ("placements.csv", "12,4", "1x,4", "placements.csv:6: unknown placement '1x'"),
        ("placements.csv", "12,4", "102,4", "placements.csv:6: unknown placement '102'"),
        ("placements.csv", "12,4", "21,4", "placement 21 is not its smallest rotation; write 12"),
        ("placements.csv", "1,16", "1,4", "placement 1 has local_bsz 4 twice"),
        ("placements.csv", "12,16,5.0,1.0\n", "", "placement 12 has one local_bsz"),
        ("placements.csv", "2,16,", "2,6,", "placement 2 has local_bsz 4 to 6, which do not bracket 4 to 8"),
        ("placements.csv", "2,4,", "2,6,", "placement 2 has local_bsz 6 to 16, which do not bracket 4 to 8"),
        ("placements.csv", "1,4,1.0,0.1\n1,16,4.0,0.1\n", "", "lacks placement 1"),
        (
            "scalability.csv",
            "6,6,8,",
            "6,6,4,",
            "scalability.csv:3: 6 replicas on 6 nodes with local_bsz 4 occur twice",
        ),
        ("scalability.csv", "6,6,4,", "6,5,4,", "num_replicas 5 is less than num_nodes 6"),
        ("validation-8.csv", "20.5,", "9.0,", "validation-8.csv:3: progress must be more than 10, not 9.0"),
        ("validation-8.csv", "20.5,20", "20.5,10", "validation-8.csv:3: iteration must be more than 10"),
        ("validation-8.csv", ",3.0", ",0", "validation-8.csv:3: grad_var must be more than 0"),
        ("validation-8.csv", "1.0,2.0", "inf,2.0", "validation-8.csv:2: grad_sqr is inf, not a finite number"),
        ("validation-16.csv", "20.5,20,0.6,-0.5,3.0\n", "", "validation-16.csv: has 1 epochs, validation-8.csv has 2"),
    ],
)
def test_a_malformed_table_is_refused_with_its_place(folder, file, old, new, said):
    change(folder / file, old, new)
    assert said in refusal(folder)


def test_a_single_batch_size_brackets_nothing(folder):
    (folder / "validation-16.csv").unlink()
    assert "has 1 files validation-<batch>.csv, which bracket no batch size" in refusal(folder)


def test_a_validation_file_needs_its_batch_size(folder):
    (folder / "validation-16.csv").rename(folder / "validation-big.csv")
    assert "validation-big.csv: its name has no batch size" in refusal(folder)


def test_the_initial_batch_must_fit_one_gpu(folder):
    (folder / "validation-8.csv").rename(folder / "validation-2.csv")
    assert "smallest local_bsz 4 exceeds the initial batch 2" in refusal(folder)


def test_placements_without_rows_are_refused(folder):
    (folder / "placements.csv").write_text(PLACEMENTS.splitlines()[0])
    assert "placements.csv: holds no placement" in refusal(folder)


def test_binary_rubbish_is_refused(folder):
    (folder / "scalability.csv").write_bytes(b"\xff\xfe\x00\x01")
    assert "scalability.csv: the file is not UTF-8 text" in refusal(folder)


def test_all_folders_at_fault_are_named_at_once(folder):
    other = folder.parent / "other"
    shutil.copytree(folder, other)
    (folder / "scalability.csv").unlink()
    change(other / "placements.csv", "1,4,1.0", "1,4,nan")
    with pytest.raises(InputError) as caught:
        read_folder(folder.parent)
    assert len(caught.value.problems) == 2


def test_a_folder_without_applications_is_refused(tmp_path):
    with pytest.raises(InputError, match="holds no application"):
        read_folder(tmp_path)
    with pytest.raises(InputError, match="is not a folder"):
        read_folder(tmp_path / "nowhere")
