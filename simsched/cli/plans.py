"""`simsched application fit-plans`, `predict-plans` and `plans`: how long large models train, by their plans."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from simsched.cli.output import json_option, print_json, table
from simsched.errors import input_error
from simsched.files import write_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from simsched.applications.calibration import ModelErrors
    from simsched.applications.plans import HardwareDocument, MeasuredSteps

hardware_option = click.option(
    "--hardware", "name", metavar="NAME", required=True, help="A shipped profile of hardware, or the YAML file of one."
)


@click.command("fit-plans")
@click.argument("path", metavar="CSV", type=click.Path(path_type=Path))
@hardware_option
@click.option(
    "--out", metavar="FILE", default="hardware.yaml", show_default=True, type=click.Path(path_type=Path),
    help="The profile written.",
)  # fmt: skip
@json_option
def fit_plans(path: Path, name: str, out: Path, as_json: bool) -> None:
    """Fit a hardware profile to measured steps; report errors by model, also of models left out one at a time.

    The fit begins at the profile named, whose `fitted` numbers it moves.
    """
    from simsched.applications.calibration import errors_by_model, fit_profile
    from simsched.applications.plans import find_hardware, hardware_text

    begun = find_hardware(name)
    steps = _read(path, begun)
    found, predicted, left_out = fit_profile(begun, steps.rows)
    inside = errors_by_model(steps.rows, predicted)
    outside = [] if left_out is None else errors_by_model(steps.rows, left_out)
    _write(out, hardware_text(found))
    numbers = {number: getattr(found.profile, number) for number in found.fitted}
    if as_json:
        print_json({"numbers": numbers, "errors": [_plain(one) for one in inside], "left_out": [*map(_plain, outside)]})
        return
    click.echo("Errors of the steps fitted, in per cent:")
    _print_errors(inside)
    if outside:
        click.echo("\nErrors of each model as predicted from the others:")
        _print_errors(outside)
    click.echo("\n" + ", ".join(f"{number} {value:.4g}" for number, value in numbers.items()))
    click.echo(out)


@click.command("predict-plans")
@click.argument("path", metavar="CSV", type=click.Path(path_type=Path))
@hardware_option
@click.option("--rows", "show_rows", is_flag=True, help="Print each row's prediction too.")
@json_option
def predict_plans(path: Path, name: str, show_rows: bool, as_json: bool) -> None:
    """Predict measured steps from a hardware profile that was not fitted to them; report errors by model."""
    from simsched.applications.calibration import errors_by_model, predict
    from simsched.applications.plans import find_hardware

    document = find_hardware(name)
    steps = _read(path, document)
    predicted = predict(document.profile, steps.rows)
    found = errors_by_model(steps.rows, predicted)
    rows = [
        {"line": step.line, "model": step.model, "plan": str(step.plan), "seconds": step.seconds, "predicted": seconds}
        for step, seconds in zip(steps.rows, predicted.tolist(), strict=True)
    ]
    if as_json:
        print_json({"errors": [_plain(one) for one in found], "rows": rows})
        return
    if show_rows:
        cells = [
            (one["model"], one["plan"], f"{one['seconds']:.3f}", f"{one['predicted']:.3f}",
             f"{100 * (one['predicted'] / one['seconds'] - 1):+.1f}")
            for one in rows
        ]  # fmt: skip
        click.echo(table(("model", "plan", "measured s", "predicted s", "%"), cells, left=2) + "\n")
    click.echo("Errors in per cent:")
    _print_errors(found)


def _read(path: Path, document: HardwareDocument) -> MeasuredSteps:
    from simsched.applications.plans import read_steps

    steps = read_steps(path, document)
    for reason, count in sorted(steps.left_out.items()):
        click.echo(f"simsched: {path}: {count} rows left out, {reason}", err=True)
    for note in steps.notes:
        click.echo(f"simsched: {path}: {note}", err=True)
    return steps


def _plain(errors: ModelErrors) -> dict[str, object]:
    from dataclasses import asdict

    return asdict(errors)


def _print_errors(found: Sequence[ModelErrors]) -> None:
    rows = [
        (one.model, str(one.rows), f"{100 * one.mean:.1f}", f"{100 * one.worst:.1f}",
         "-" if one.ranked is None else f"{100 * one.ranked:.1f}")
        for one in found
    ]  # fmt: skip
    click.echo(table(("model", "steps", "mean", "worst", "plan ranked first, over the best"), rows))


def _write(path: Path, text: str) -> None:
    try:
        write_text(path, text)
    except OSError as error:
        raise input_error(path, f"cannot be written: {error.strerror}", "name another place with --out") from error
