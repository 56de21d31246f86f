"""The file format of applications, the catalogue, and what ships."""

import re
import shutil
import sys

import pytest

from simsched.applications.calibration.application_fit import fit_folder, write_documents
from simsched.applications.catalogue import ApplicationCatalogue, ApplicationsOptions, catalogue
from simsched.applications.file_format import document_of, read_document, template
from simsched.errors import InputError
from simsched.model.application import BatchChoice, BatchLimits
from simsched.model.job import JobRequest, JobTruth
from simsched.model.placement import Site
from simsched.model.step_model import PlacementModel, SevenParameters
from simsched.model.tabulated import FixedDuration
from simsched.paths import data_folder
from simsched.testing.builders import application_of

SHIPPED = ("bert", "cifar10", "deepspeech2", "imagenet", "ncf", "yolov3")


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "toy.yaml"
    path.write_text(template("toy"))
    return path


def change(path, old, new):
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))


def refusals(path):
    with pytest.raises(InputError) as caught:
        read_document(path)
    return [str(problem) for problem in caught.value.problems]


def line_of(path, text):
    return next(number for number, line in enumerate(path.read_text().splitlines(), start=1) if text in line)


def test_the_template_is_a_complete_application(file):
    app = read_document(file).application()
    assert app.name == "toy"
    assert app.limits == BatchLimits(128, 4096, 32, 1024)
    assert app.gpu_types == ("t4",)
    run = app.run(Site((4, 2), "t4"), BatchChoice(342, 0), 0)
    assert 0 < run.efficiency < 1
    assert run.step.step_s > 0.025 + 0.0006 * 342


@pytest.mark.parametrize(
    ("old", "new", "line", "said"),
    [
        ("epochs: 100", "epoch: 100", "epoch: 100", "training.epoch: there is no such key; did you mean 'epochs'?"),
        ("gamma: 1.5", "gamma: 11", "gamma", "speed.0.seven_parameters.gamma: must be at most 10"),
        ("beta_n:", "beta_m:", "beta_m", "did you mean 'beta_"),
        ("max: 4096", "max: many", "max: many", "batch.max: must be a whole number, not 'many'"),
        ("max: 4096", "max: .nan", "max: .nan", "batch.max: must be a whole number"),
        ("size: S", "size: XXL", "size: XXL", "size: must be 'S', 'M', 'L' or 'XL', not 'XXL'"),
        ("adascale ", "adascal ", "adascal ", "did you mean 'adascale'?"),
        ("application/1", "application/2", "format", "format: must be 'simsched-application/1'"),
        ("[1500, 3500]", "[1500, -1]", "[1500, -1]", "noise_scale.1.1: must be more than 0"),
    ],
)
def test_what_is_wrong_is_named_with_its_line(file, old, new, line, said):
    change(file, old, new)
    found = [text for text in refusals(file) if said in text]
    assert found
    assert found[0].startswith(f"{file}:{line_of(file, line)}: ")


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("initial: 128", "initial: 8000", "'initial' 8000 exceeds 'max' 4096"),
        ("min_per_gpu: 32", "min_per_gpu: 200", "'min_per_gpu' 200 exceeds 'max_per_gpu' or 'initial'"),
        ("[128, 256, 512", "[128, 512, 256", "'validated' must ascend"),
        ("[128, 256, 512", "[64, 256, 512", "'validated' must lie between 'initial' and 'max'"),
        ("epochs: [0, 10, 99]", "epochs: [0, 10]", "'noise_scale' has 3 rows, 'epochs' has 2"),
        ("[1500, 3500]", "[1500]", "row 2 of 'noise_scale' has 1 values, not 2"),
        ("  # fixed: 128 ", "  fixed: 64 ", "'fixed' 64 must lie between"),
        ("iterations_per_epoch: 391", "iterations_per_epoch: 391\n  iterations_ratio: [1]", "needs one value for each"),
    ],
)
def test_contradictions_are_named(file, old, new, said):
    change(file, old, new)
    assert any(said in text for text in refusals(file))


def test_all_that_is_wrong_is_said_at_once(file):
    change(file, "epochs: 100", "epochs: 0")
    change(file, "max: 4096", "maximum: 4096")
    change(file, "alpha_c: 0.025", "alpha_c: fast")
    assert len(refusals(file)) >= 4  # too few epochs, an unknown key, a missing one, a number that is text


def test_a_speed_needs_some_form_and_each_type_once(file):
    text = file.read_text()
    head = text[: text.index("    seven_parameters")]
    file.write_text(head)
    assert any("needs 'seven_parameters' or 'step_times'" in said for said in refusals(file))
    speed = text[text.index("  - gpu_type") :]
    file.write_text(text + speed)
    assert any("'speed' gives a GPU type twice" in said for said in refusals(file))


def test_several_gpu_types_may_be_given(file):
    text = file.read_text()
    speed = text[text.index("  - gpu_type") :].replace("t4", "v100").replace("0.0006", "0.0003")
    file.write_text(text + speed)
    app = read_document(file).application()
    assert app.gpu_types == ("t4", "v100")
    assert app.step_time(Site((1,), "v100"), 512).step_s < app.step_time(Site((1,), "t4"), 512).step_s


def test_writing_and_reading_back_changes_nothing(file, tmp_path):
    first = read_document(file)
    again = tmp_path / "again.yaml"
    again.write_text(first.text())
    assert read_document(again) == first
    assert document_of(first.application(), {}).application().limits == first.application().limits


@pytest.mark.parametrize("name", SHIPPED)
def test_what_ships_is_short_and_names_its_source(name):
    path = data_folder("workloads") / "applications" / f"{name}.yaml"
    document = read_document(path)
    assert document.name == name
    assert "OSDI'21" in document.source
    assert document.learning_rate_rule == ("square-root" if name in ("bert", "ncf") else "adascale")
    assert len(path.read_text().splitlines()) < 120


@pytest.mark.parametrize("name", SHIPPED)
def test_what_ships_behaves(name):
    app = application_of(ApplicationCatalogue.load(), name)
    assert isinstance(app.step_models["t4"], PlacementModel)
    limits = app.limits
    for epoch in range(app.epochs):
        gains = [app.gradient(size, epoch).gain(size / limits.init_batch_size) for size in app.batch_sizes]
        assert gains[0] == pytest.approx(1.0)
        for size, gain in zip(app.batch_sizes, gains, strict=True):
            assert 1.0 <= gain <= size / limits.init_batch_size
    for shape in ((1,), (2,), (4,), (4, 4), (1, 3), (4,) * 16, (1,) * 16, (8,), (8, 8, 8)):
        for size in {limits.min_local_bsz, limits.max_local_bsz}:
            step = app.step_time(Site(shape, "t4"), size)
            assert 0 < step.step_s < 60
            assert 0 <= step.sync_s < step.step_s


def test_seven_parameters_ship_beside_the_physics():
    document = read_document(data_folder("workloads") / "applications" / "imagenet.yaml")
    (speed,) = document.speed
    assert speed.seven_parameters.gamma > 1
    assert isinstance(speed.seven_parameters.build(), SevenParameters)


def test_the_catalogue_knows_what_ships():
    catalogue = ApplicationCatalogue.load()
    assert catalogue.names() == SHIPPED
    assert application_of(catalogue, "ncf").max_gpus == 1
    assert application_of(catalogue, "ncf") is application_of(catalogue, "ncf", 5)


def test_the_catalogue_makes_fixed_durations():
    job = application_of(ApplicationCatalogue.load(), "fixed-duration", 77)
    assert isinstance(job, FixedDuration)
    assert job.duration_s == 77
    with pytest.raises(InputError, match="duration above 0 seconds"):
        application_of(ApplicationCatalogue.load(), "fixed-duration")


def test_unknown_applications_get_the_nearest_name():
    with pytest.raises(InputError, match=r"no application .cifar100.* did you mean .cifar10.\?"):
        application_of(ApplicationCatalogue.load(), "cifar100")


def test_the_catalogue_reads_files_and_folders_of_files(file):
    assert ApplicationCatalogue.load(file).names() == ("toy",)
    assert ApplicationCatalogue.load(file.parent).names() == ("toy",)


def test_two_files_may_not_give_one_name(file):
    shutil.copy(file, file.with_name("twin.yaml"))
    with pytest.raises(InputError, match="the name 'toy' is taken"):
        ApplicationCatalogue.load(file.parent)


def test_a_catalogue_needs_something_to_read(tmp_path):
    with pytest.raises(InputError, match="holds neither application files"):
        ApplicationCatalogue.load(tmp_path)
    with pytest.raises(InputError, match="there is no such folder"):
        ApplicationCatalogue.load(tmp_path / "nowhere")


def measured_in(folder):
    """Write a small application in the layout of published measurements."""
    place = folder / "measured" / "toy"
    place.mkdir(parents=True)
    rows = ["placement,local_bsz,step_time,sync_time"]
    shapes = ["1", "2", "3", "4", "11", "12", "22", "44", "111", "222", "444"]
    for shape in shapes:
        for size in (4, 8, 16, 32):
            sync = 0.001 if shape == "1" else 0.05 * len(shape) * int(shape[-1])
            rows.append(f"{shape},{size},{0.1 + 0.02 * size + sync},{sync}")
    (place / "placements.csv").write_text("\n".join(rows) + "\n")
    rows = ["num_nodes,num_replicas,local_bsz,step_time,sync_time"]
    rows += [f"{k},{n},{b},{0.3 + 0.02 * b + 0.01 * n},{0.2 + 0.01 * n}" for k, n in ((6, 6), (6, 24)) for b in (4, 8)]
    (place / "scalability.csv").write_text("\n".join(rows) + "\n")
    for size in (16, 32, 64):
        rows = ["progress,iteration,grad_sqr,grad_var"]
        rows += [f"{100 * e},{100 * 16 / size * e},1.0,{e}" for e in range(1, 11)]
        (place / f"validation-{size}.csv").write_text("\n".join(rows) + "\n")
    return place.parent


@pytest.fixture
def measurements(tmp_path):
    return measured_in(tmp_path)


@pytest.fixture(scope="module")
def fitted(tmp_path_factory):
    """Fit the measurements once."""
    return fit_folder(measured_in(tmp_path_factory.mktemp("fitted")))


def test_the_catalogue_reads_measurements(measurements):
    assert ApplicationCatalogue.load(measurements).names() == ("toy",)
    assert ApplicationCatalogue.load(measurements / "toy").names() == ("toy",)


def test_measurements_and_files_do_not_mix(measurements, file):
    shutil.copy(file, measurements)
    with pytest.raises(InputError, match="holds both"):
        ApplicationCatalogue.load(measurements)


def test_fitting_a_folder_writes_files_that_say_how_true_they_are(fitted, tmp_path):
    (result,) = fitted
    assert result.errors.points == 11 * 4 + 4
    assert result.errors.step_mean < 0.1
    assert result.errors.efficiency_mean < 0.02
    out = tmp_path / "out"
    (path,) = write_documents([result], out)
    assert re.search(r"step time \d+\.\d% \(worst", path.read_text())
    assert list(out.iterdir()) == [path]
    written = application_of(ApplicationCatalogue.load(out), "toy")
    assert written.limits == result.application.limits
    assert written.step_time(Site((4, 4), "t4"), 8) == result.application.step_time(Site((4, 4), "t4"), 8)
    assert written.iterations(64, 9) == pytest.approx(250.0, rel=1e-3)


def test_fitting_is_the_same_every_time(fitted, measurements):
    assert fit_folder(measurements)[0].document == fitted[0].document


def test_an_unwritable_folder_is_named(fitted, tmp_path):
    blocker = tmp_path / "blocker"
    blocker.write_text("")
    with pytest.raises(InputError, match="cannot be written"):
        write_documents(fitted, blocker)


def test_a_file_changed_within_a_process_is_read_again(file):
    options = ApplicationsOptions(str(file))
    assert catalogue(options) is catalogue(options)
    change(file, "name: toy", "name: doll")
    assert set(catalogue(options).applications) == {"doll"}


def test_shipped_files_are_read_when_one_is_asked_for(monkeypatch):
    def refuse(files):
        raise AssertionError(f"{len(files)} files are read")

    monkeypatch.setattr(sys.modules[ApplicationCatalogue.__module__], "_read_files", refuse)
    shipped = ApplicationCatalogue.load()
    assert shipped.for_job(JobRequest("job", 0, 2), JobTruth(60)).epoch_end(0) == 60
    with pytest.raises(AssertionError, match="files are read"):
        shipped.names()
