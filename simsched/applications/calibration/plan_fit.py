"""Fits the parameters of a hardware profile to measured steps, and reports how well it predicts steps."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from simsched.applications.plans import FitErrors, HardwareDocument, MeasuredStep, extent
from simsched.arithmetic import exp, log
from simsched.model.plans import Hardware, MeasuredLayers, ModelShape, PlanTable, of_a_layer, step_times

Floats = NDArray[np.float64]

_SCALE = 0.02  # relative error above which a step counts as an outlier (Cauchy loss)
_HIGHEST = {"efficiency": 1.0, "exposed": 1.0, "exposed_messages": 1.0}
_DOUBT = log(2)  # prior standard deviation of the logarithm of a parameter: a factor of two
_FARTHEST = 1e6  # largest factor between a parameter and its expected value
_MOST_STEPS = 200
_CONVERGED = 1e-7  # of the loss
_NUDGE = 1e-5  # of a logarithm, for derivatives
_LEAST_FACTOR = 0.1  # of a layer or the output, relative to the model
_FACTOR_DIGITS = 4
_DIGITS = 5  # significant ones of fitted parameters
_ROUNDS = 10  # of weights, for the factors of layers


@dataclass(frozen=True)
class ModelErrors:
    """Relative errors of a model's steps; `worst` is the largest, `ranked` the excess cost of the plan ranked first.

    For each number of GPUs and global batch, `ranked` compares the measured seconds of the plan predicted fastest with
    those of the plan measured fastest, and takes the worst; None if no two plans were measured. If a plan was measured
    twice, the faster time counts.
    """

    model: str
    rows: int
    mean: float
    worst: float
    ranked: float | None


class PlanFit(NamedTuple):
    """A profile with the errors of its fit; `left_out` has the seconds of each step predicted from the other models."""

    document: HardwareDocument
    predicted_s: Floats
    left_out_s: Floats | None


def fit_profile(document: HardwareDocument, steps: Sequence[MeasuredStep]) -> PlanFit:
    """Fit the `fitted` parameters of a profile to measured steps; cross-validate by model if there are several.

    The fit starts at the expected parameters, with a prior that assumes each to be known to a factor of two.
    """
    fitted = _of(document, steps)
    predicted, measured = predict(fitted, steps), _seconds(steps)
    models = sorted({step.model for step in steps})
    left_out = _leave_models_out(document, steps, models) if len(models) > 1 else None
    inside, outside = (_mean_worst(one, measured) for one in (predicted, left_out))
    asked = [extent(step.shape, step.plan) for step in steps]
    found = FitErrors(
        rows=len(steps), models=len(models), mean=inside[0], worst=inside[1],
        left_out_mean=outside[0], left_out_worst=outside[1],
        least={name: min(one[name] for one in asked) for name in asked[0]},
        most={name: max(one[name] for one in asked) for name in asked[0]},
    )  # fmt: skip
    return PlanFit(document.model_copy(update={"profile": fitted, "errors": found}), predicted, left_out)


def _mean_worst(predicted: Floats | None, measured: Floats) -> tuple[Any, Any]:
    if predicted is None:
        return None, None
    off = np.abs(predicted / measured - 1)
    return round(float(off.mean()), 4), round(float(off.max()), 4)


def _leave_models_out(document: HardwareDocument, steps: Sequence[MeasuredStep], models: Sequence[str]) -> Floats:
    found = np.zeros(len(steps))
    for model in models:
        others = [step for step in steps if step.model != model]
        own = [place for place, step in enumerate(steps) if step.model == model]
        found[own] = predict(_of(document, others), [steps[place] for place in own])
    return found


def errors_by_model(steps: Sequence[MeasuredStep], predicted: Floats) -> list[ModelErrors]:
    """Return the errors of predicted seconds by model, and of all models if there are several, sorted by name."""
    names = sorted({step.model for step in steps})
    found = [_errors(name, steps, predicted, [step.model == name for step in steps]) for name in names]
    if len(names) > 1:
        found.append(_errors("all", steps, predicted, [True] * len(steps)))
    return found


def _errors(name: str, steps: Sequence[MeasuredStep], predicted: Floats, picked: Sequence[bool]) -> ModelErrors:
    places = [place for place, one in enumerate(picked) if one]
    off = np.abs(predicted[places] / _seconds([steps[place] for place in places]) - 1)
    groups: dict[tuple[object, ...], list[int]] = {}
    for place in places:
        step = steps[place]
        groups.setdefault((step.shape, step.plan.gpus, step.global_batch), []).append(place)
    choices = [group for group in groups.values() if len({steps[place].plan for place in group}) > 1]
    costs = [_cost_of_choice(steps, predicted, group) for group in choices]
    return ModelErrors(name, len(places), float(off.mean()), float(off.max()), max(costs, default=None))


def _cost_of_choice(steps: Sequence[MeasuredStep], predicted: Floats, group: Sequence[int]) -> float:
    chosen = min(group, key=lambda place: float(predicted[place]))
    same = [steps[place].seconds for place in group if steps[place].plan == steps[chosen].plan]
    return min(same) / min(steps[place].seconds for place in group) - 1


def predict(hardware: Hardware, steps: Sequence[MeasuredStep]) -> Floats:
    """Return the modelled seconds of steps on the profile's nodes, filled one after the other."""
    return _Prepared(steps)(hardware)


class _Prepared:
    """Steps as tables, one for each shape, on one or several nodes."""

    def __init__(self, steps: Sequence[MeasuredStep]) -> None:
        groups: dict[ModelShape, list[int]] = {}
        for place, step in enumerate(steps):
            groups.setdefault(step.shape, []).append(place)
        self._count = len(steps)
        self._groups = [
            (
                shape,
                np.array(places),
                PlanTable.of([steps[place].plan for place in places]),
                np.array([steps[place].global_batch for place in places], dtype=np.float64),
            )
            for shape, places in groups.items()
        ]

    def __call__(self, hardware: Hardware) -> Floats:
        """Return the seconds of each step; groups of a plan on a single node lie within it."""
        found = np.zeros(self._count)
        tiers = hardware.tiers((hardware.node_gpus,) * 2)
        for shape, places, table, batches in self._groups:
            found[places] = step_times(shape, hardware, table, batches, tiers).total
        return found


def _seconds(steps: Sequence[MeasuredStep]) -> Floats:
    return np.array([step.seconds for step in steps])


def _of(document: HardwareDocument, steps: Sequence[MeasuredStep]) -> Hardware:
    """Return a profile with its fitted parameters, and then any factors of layers, from steps."""
    fitted = _fitted(replace(document.profile, layers=()), document.expected, steps)
    return replace(fitted, layers=_layers(fitted, steps)) if document.fit_layers else fitted


def _layers(hardware: Hardware, steps: Sequence[MeasuredStep]) -> tuple[MeasuredLayers, ...]:
    """Return the factors of each layer in the steps, by least squares of relative errors with Cauchy weights.

    A step is linear in the two factors; a deviation of 1 from factor 1 counts like an error of `_SCALE`.
    """
    kinds: dict[ModelShape, dict[str, list[int]]] = {}
    for place, step in enumerate(steps):
        plans = kinds.setdefault(replace(step.shape, layers=1), {})
        plans.setdefault(str(of_a_layer(step.plan)), []).append(place)

    def all_with(layer: float, output: float) -> Floats:
        measured = [MeasuredLayers(one, tuple((plan, layer, output) for plan in plans)) for one, plans in kinds.items()]
        return predict(replace(hardware, layers=tuple(measured)), steps) / _seconds(steps)

    usual = all_with(1.0, 1.0)
    slopes = np.array([all_with(2.0, 1.0) - usual, all_with(1.0, 2.0) - usual])

    def factors(places: list[int]) -> tuple[float, float]:
        own, off, found = slopes[:, places], usual[places] - 1, np.zeros(2)
        for _ in range(_ROUNDS):
            errors = off + (found[:, None] * own).sum(axis=0)
            weights = 1 / (_SCALE**2 + errors**2)
            bend = (weights * own[:, None, :] * own[None, :, :]).sum(axis=-1) + np.eye(2)
            found = _solved(bend, -(weights * own * off).sum(axis=-1))
        layer, output = np.maximum(1 + found, _LEAST_FACTOR).round(_FACTOR_DIGITS).tolist()
        return layer, output

    return tuple(
        MeasuredLayers(shape, tuple((plan, *factors(places)) for plan, places in sorted(plans.items())))
        for shape, plans in kinds.items()
    )


def _fitted(start: Hardware, expected: Mapping[str, float], steps: Sequence[MeasuredStep]) -> Hardware:
    """Minimise the sum of Cauchy losses of log errors and of squared distances from the expected parameters.

    Parameters are rounded as files hold them, so that a file predicts just what its fit reports.
    """
    measured, prepared = log(_seconds(steps)), _Prepared(steps)
    begun = log(np.array(list(expected.values())))
    highest = np.minimum(log(np.array([_HIGHEST.get(name, np.inf) for name in expected])), begun + log(_FARTHEST))

    def profile(at: Floats) -> Hardware:
        return replace(start, **dict(zip(expected, exp(at).tolist(), strict=True)))

    def off(at: Floats) -> Floats:
        return log(prepared(profile(at))) - measured

    found = profile(_descended(off, begun, (begun - log(_FARTHEST), highest)))
    rounded: dict[str, Any] = {name: float(f"{getattr(found, name):.{_DIGITS}g}") for name in expected}
    return replace(found, **rounded)


def _descended(off: Callable[[Floats], Floats], expected: Floats, bounds: tuple[Floats, Floats]) -> Floats:
    """Return where damped Gauss-Newton steps on the logarithms of parameters converge, from the expected ones."""
    at, damping, drawn = np.minimum(expected, bounds[1]), 1e-3, (_SCALE / _DOUBT) ** 2
    errors = off(at)
    loss = _loss(errors, at - expected)
    for _ in range(_MOST_STEPS):
        slopes = np.array([(off(at + one) - off(at - one)) / (2 * _NUDGE) for one in _NUDGE * np.eye(len(at))])
        weighted = slopes / (1 + (errors / _SCALE) ** 2)
        bend = (weighted[:, None, :] * slopes[None, :, :]).sum(axis=-1) + drawn * np.eye(len(at))
        slope = (weighted * errors).sum(axis=-1) + drawn * (at - expected)
        while damping < 1e12:
            aim = np.clip(at + _solved(bend + damping * np.diag(np.diag(bend)), -slope), *bounds)
            aimed = off(aim)
            if _loss(aimed, aim - expected) < loss:
                break
            damping *= 4.0
        else:
            break
        before, at, errors, loss = loss, aim, aimed, _loss(aimed, aim - expected)
        damping *= 0.25
        if before - loss <= _CONVERGED * before:
            break
    return at


def _loss(errors: Floats, departures: Floats) -> float:
    return float(log(1 + (errors / _SCALE) ** 2).sum() + ((departures / _DOUBT) ** 2).sum())


def _solved(matrix: Floats, right: Floats) -> Floats:
    """Solve a small positive definite system by elimination in a fixed order."""
    rows, found = matrix.copy(), right.copy()
    count = len(found)
    for i in range(count):
        for j in range(i + 1, count):
            part = rows[j, i] / rows[i, i]
            rows[j] -= part * rows[i]
            found[j] -= part * found[i]
    for i in reversed(range(count)):
        found[i] = (found[i] - sum(rows[i, j] * found[j] for j in range(i + 1, count))) / rows[i, i]
    return found
