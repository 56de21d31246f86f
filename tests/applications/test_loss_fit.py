"""Curves of losses fitted to evaluations: made-up ones are found again, shipped ones are those of the measurements."""

from dataclasses import replace

import numpy as np
import pytest

from simsched.applications.calibration.loss_fit import fit_loss
from simsched.applications.catalogue import catalogue
from simsched.applications.measurements import read_folder
from simsched.applications.published import APPLICATIONS, POLLUX_BOUNDS, LossMetric
from simsched.model.measured import MeasuredApplication
from simsched.testing.builders import toy_application

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
