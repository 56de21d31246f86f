"""Losses of applications, measured and fitted."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from simsched.applications.calibration.loss_fit import fit_loss
from simsched.applications.catalogue import catalogue
from simsched.applications.file_format import document_of, read_document
from simsched.applications.measurements import read_folder
from simsched.applications.published import APPLICATIONS, POLLUX_BOUNDS, LossMetric
from simsched.engine.providers import LEAST_REPORTS, LossReporter
from simsched.errors import InputError
from simsched.experiment.running.cell import loss_table
from simsched.model.application import LossCurve, ScaledApplication, facts_of
from simsched.model.job import JobSpec
from simsched.model.measured import MeasuredApplication
from simsched.paths import data_folder
from simsched.policy import Decision, Policy, Traits, Triggers, UndeclaredSignalError
from simsched.policy.signals import LOSSES
from simsched.testing.builders import run, toy_application

APP = toy_application()
CURVE = LossCurve((0.0, 1.0, 3.0), (1.0, 0.5, 0.25), 0.1)


def test_a_piece_of_the_curve_is_a_power_law():
    # log2(1 + epochs) is 0, 1, 2 at the points given: the loss halves each time, so it is 1 / (1 + epochs).
    assert CURVE.at([0, 0.5, 2, 3, 9]) == pytest.approx([1, 1 / 1.5, 1 / 3, 0.25, 0.25])


@pytest.mark.parametrize(
    ("epochs", "losses"),
    [((0, 1), (1,)), ((1, 2), (2, 1)), ((0, 2, 1), (3, 2, 1)), ((0, 1), (1, 2)), ((0, 1), (1, 1)), ((0, 1), (1, 0))],
)
def test_what_does_not_fall_is_no_curve(epochs, losses):
    with pytest.raises(ValueError, match="loss"):
        LossCurve(epochs, losses)


@settings(max_examples=30)
@given(st.lists(st.floats(0, 400), min_size=2, max_size=6), st.integers(0, 5))
def test_reports_tell_the_past_only(progress, seed):
    reporter = LossReporter(APP, CURVE, np.random.default_rng(seed))
    earlier = reporter.reports(0.0)
    assert earlier.epochs == ()
    for now in sorted(progress):
        reports = reporter.reports(now)
        assert reports.done == pytest.approx(now / 100)
        assert all(epochs <= reports.done + 1e-12 for epochs in reports.epochs)
        assert len(reports.epochs) == len(reports.losses)
        assert reports.losses[: len(earlier.losses)] == earlier.losses, "what was reported stays"
        earlier = reports


def test_the_loss_before_training_is_reported_with_the_first_progress():
    reporter = LossReporter(APP, CURVE, np.random.default_rng(0))
    assert [reporter.reports(progress).epochs for progress in (0, 1e-9, 0.5)] == [(), (0,), (0,)]


def test_reports_scatter_around_the_curve():
    reports = LossReporter(APP, CURVE, np.random.default_rng(0)).reports(400)
    assert len(reports.epochs) == LEAST_REPORTS + 1
    assert (reports.epochs[0], reports.epochs[-1], reports.epoch_progress) == (0, 4, 100)
    off = np.log(reports.losses) - np.log(CURVE.at(reports.epochs))
    assert off.std() == pytest.approx(0.1, rel=0.2)


class Listener(Policy):
    """Keeps what its job reports."""

    name = "listener"
    traits = Traits(needs={LOSSES})

    def __init__(self):
        self.heard = []

    @property
    def triggers(self):
        return Triggers(interval_s=60)

    def decide(self, view, rng):
        for job in view.jobs.values():
            self.heard.append(job[LOSSES])
        return Decision({job.id: ((0, 1),) for job in view.jobs.values()})


class Deaf(Listener):
    """Reads what it does not declare."""

    traits = replace(Listener.traits, needs=frozenset())


def test_a_policy_hears_of_losses_as_training_goes_on():
    policy, other = Listener(), Listener()
    run(policy, [JobSpec("a", 0, 1, "toy", 64)])
    run(other, [JobSpec("a", 0, 1, "toy", 64)], seed=2)
    assert policy.heard[0].losses == (), "it has not begun"
    lengths = [len(reports.losses) for reports in policy.heard]
    assert lengths == sorted(lengths)
    assert 1 < lengths[-1] <= LEAST_REPORTS
    last = policy.heard[-1]
    assert last.epochs[-1] <= last.done < 4
    assert last.losses == pytest.approx(APP.loss_curve.at(last.epochs)), "the toy's reports have no noise"
    assert other.heard == policy.heard
    with pytest.raises(UndeclaredSignalError, match="losses"):
        run(Deaf(), [JobSpec("a", 0, 1, "toy", 64)])


def test_all_shipped_applications_report_losses():
    for name, app in catalogue().applications.items():
        assert facts_of(app).reports_loss, name
        assert app.loss_curve.epochs[-1] == app.epochs, name
        table = loss_table(app, app.loss_curve)
        assert (table.loss[0], table.loss[-1]) == (1, 0)
        assert table.progress[-1] == pytest.approx(app.epoch_end(app.epochs - 1))
        assert (np.diff(table.loss) <= 0).all()
        assert ScaledApplication(app, name, 2.0).loss_curve is app.loss_curve


def test_a_file_keeps_its_curve(tmp_path):
    path = data_folder("workloads") / "applications" / "cifar10.yaml"
    app = read_document(path).application()
    assert document_of(app, {}).application().loss_curve == app.loss_curve
    text = path.read_text(encoding="utf-8").replace("epochs: [0.0,", "epochs: [0.5,")
    (tmp_path / "bad.yaml").write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match="begin at 0"):
        read_document(tmp_path / "bad.yaml")


AS_IT_IS = LossMetric("loss", 1.0, 0.0, 1.0)


def with_metric(values):
    """Make an application whose runs evaluated these values after each epoch."""
    toy = toy_application(epochs=len(values))
    curves = [replace(curve, metric=tuple(values)) for curve in toy.curves]
    return MeasuredApplication("toy", toy.placements, toy.scalability, curves)


def test_a_power_law_with_a_step_is_found_again():
    epochs = np.arange(1, 41)
    truth = 0.8 / (1 + epochs) ** 0.3 * np.where(epochs > 20, 0.5, 1)
    curve = fit_loss(with_metric(truth), AS_IT_IS)
    assert curve.losses[0] == 1
    assert curve.at(epochs) == pytest.approx(truth, rel=0.05)
    assert {20, 21} <= set(curve.epochs)
    assert curve.noise < 0.02


def test_noise_is_told_from_the_curve():
    epochs, rng = np.arange(1, 101), np.random.default_rng(3)
    truth = 1 / (1 + epochs) ** 0.5
    curve = fit_loss(with_metric(truth * np.exp(0.05 * rng.standard_normal(100))), AS_IT_IS)
    assert curve.noise == pytest.approx(0.05, rel=0.25)
    assert curve.at(epochs) == pytest.approx(truth, rel=0.15)


def test_an_accuracy_becomes_a_loss_and_an_unknown_start_is_extrapolated():
    found = fit_loss(with_metric([0.5, 0.75]), LossMetric("1 - accuracy", -1.0, 1.0, None))
    assert found.losses == pytest.approx((1.0, 0.5, 0.25), rel=1e-3)
    assert fit_loss(toy_application(), AS_IT_IS) is None


def test_shipped_curves_are_those_of_the_measurements(shared):
    """The published evaluations lie around the shipped curves as closely as their files say."""
    folder = shared / "pollux-osdi21" / "traces"
    if not folder.is_dir():
        pytest.skip("the published measurements are not at hand")
    shipped = catalogue().applications
    for name, measured in read_folder(folder, bounds=POLLUX_BOUNDS).items():
        metric = APPLICATIONS[name].metric
        fitted = fit_loss(measured, metric)
        assert shipped[name].loss_curve.epochs == fitted.epochs, name
        assert shipped[name].loss_curve.losses == pytest.approx(fitted.losses, rel=1e-4), name
        evaluated = metric.scale * np.array(measured.curves[0].metric) + metric.offset
        off = np.log(evaluated) - np.log(fitted.at(np.arange(1, len(evaluated) + 1)))
        assert off.std() < 1.1 * fitted.noise + 0.02, name
