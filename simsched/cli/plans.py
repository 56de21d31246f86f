"""`simsched application fit-plans`, `predict-plans` and `plans`: how long large models train with their plans."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from simsched.cli.output import json_option, print_json, say_figures, table, write_file
from simsched.errors import InputError, input_error, nearest
from simsched.words import counted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from simsched.applications.calibration import ModelErrors
    from simsched.applications.plans import HardwareDocument, MeasuredSteps
    from simsched.model import Cluster
    from simsched.model.plans import ModelShape, Plan, PlannedModel, PlanSpace
    from simsched.operators.training import PlanAnswer, Question

hardware_option = click.option(
    "--hardware", "name", metavar="NAME", required=True, help="A shipped hardware profile, or the YAML file of one."
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
    """Fit a hardware profile to measured steps; report errors by model, also with each model left out in turn.

    The fit starts from the profile's expectations for its `fitted` parameters.
    """
    from simsched.applications.calibration import errors_by_model, fit_profile
    from simsched.applications.plans import find_hardware, hardware_text

    begun = find_hardware(name)
    steps = _read(path, begun)
    found, predicted, left_out = fit_profile(begun, steps.rows)
    inside = errors_by_model(steps.rows, predicted)
    outside = [] if left_out is None else errors_by_model(steps.rows, left_out)
    write_file(out, hardware_text(found))
    numbers = {number: getattr(found.profile, number) for number in found.fitted}
    if as_json:
        print_json({"numbers": numbers, "errors": [_plain(one) for one in inside], "left_out": [*map(_plain, outside)]})
        return
    click.echo("Errors of the fitted steps, in per cent:")
    _print_errors(inside)
    if outside:
        click.echo("\nErrors of each model, predicted from the others:")
        _print_errors(outside)
    click.echo("\n" + ", ".join(f"{number} {value:.4g}" for number, value in numbers.items()))
    click.echo(out)


@click.command("predict-plans")
@click.argument("path", metavar="CSV", type=click.Path(path_type=Path))
@hardware_option
@click.option("--rows", "show_rows", is_flag=True, help="Also print the prediction of each row.")
@json_option
def predict_plans(path: Path, name: str, show_rows: bool, as_json: bool) -> None:
    """Predict measured steps from a hardware profile that was not fitted to them; report errors by model.

    The command warns about rows outside the range of the measured models and plans.
    """
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
    _say_beyond(document, [(step.shape, step.plan) for step in steps.rows])
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


@click.command("plans")
@click.argument("model")
@hardware_option
@click.option("--gpus", required=True, type=click.IntRange(min=1), help="GPUs of the job.")
@click.option("--global-batch", type=click.IntRange(min=1), help="Sequences per step. [default: the model's]")
@click.option("--plan", "asked", metavar="PLAN", help="One plan, such as 't8 p4 d16 b1 v2 sp zero1'.")
@click.option("--tokens", type=click.FloatRange(min=1), default=1e12, show_default=True, help="Tokens to train on.")
@click.option(
    "--experiment", metavar="FILE", type=click.Path(path_type=Path), help="Take cluster and tiers from an experiment."
)
@click.option("--across", metavar="LEVEL", help="Show the cost of straddling two domains of a level of that cluster.")
@click.option(
    "--weak-scaling",
    "doublings",
    metavar="N",
    type=click.IntRange(0, 16),
    default=0,
    help="Show the fastest plan as GPUs and global batch double together this many times.",
)
@click.option("--top", default=5, show_default=True, type=click.IntRange(1, 100), help="Plans to show.")
@click.option("--unmeasured", is_flag=True, help="Also consider kinds of plans that were never measured.")
@click.option("--out", metavar="DIR", default="figures", show_default=True, type=click.Path(path_type=Path))
@click.option("--no-plots", is_flag=True, help="Draw no figure.")
@json_option
def plans(
    model: str, name: str, gpus: int, global_batch: int | None, asked: str | None, tokens: float,
    experiment: Path | None, across: str | None, doublings: int, top: int, unmeasured: bool, out: Path, no_plots: bool,
    as_json: bool,
) -> None:  # fmt: skip
    """Show how long a model trains on some GPUs with the fastest plans, and how a step's time is spent.

    MODEL is a shipped one, or the YAML file of one.
    """
    from simsched.applications.plans import find_hardware
    from simsched.model.plans import EVERYTHING
    from simsched.operators.training import Question, tight_site

    document = find_hardware(name)
    known = _model(model)
    question = Question(known.shape, document.profile, gpus, global_batch or known.global_batch)
    cluster = None if experiment is None else _cluster(experiment)
    site = tight_site(question, cluster)
    space = EVERYTHING if unmeasured else None
    if asked is not None:
        found = [question.of_plan(_parsed(asked), site.tiers)]
    else:
        found = question.fastest(site.tiers, top, space)
    if not found:
        raise _nothing_fits(question, model)
    beside = [] if across is None else _apart(question, cluster, across, found[0].plan, space)
    beside = beside[:1] if asked is not None else beside
    grown = [replace(question, gpus=gpus << k, global_batch=question.global_batch << k) for k in range(doublings + 1)]
    scaled = [(one, _fastest(one, cluster, model, space)) for one in (grown if doublings else [])]
    answers = [*found, *(one for _, one in beside), *(one for _, one in scaled)]
    _say_beyond(document, [(known.shape, one.plan) for one in answers])
    if as_json:
        print_json(_listed(found, beside, scaled))
        return
    _print_plans(question, found)
    _print_best(question, found[0], tokens)
    for where, one in beside:
        click.echo(f"{where}: {one.plan}, {one.step_s:.3f} s, {one.step_s / found[0].step_s - 1:+.1%}")
    click.echo(f"Measured error of the profile: {document.errors or 'unknown'}.")
    if unmeasured:
        click.echo("They include kinds of plans that were never measured, with times from the model alone.")
    if scaled:
        _print_scaling(scaled)
    if not no_plots:
        kind = question.hardware.gpu_type.upper()
        labelled = [(str(one.plan), one) for one in found]
        _draw(labelled, f"A step on {gpus} {kind}, by plan", f"{known.name}-plans", out)
        if scaled:
            growing = [(f"{one.gpus} GPUs: {best.plan}", best) for one, best in scaled]
            title = f"A step on {kind}, as GPUs and batch double together"
            _draw(growing, title, f"{known.name}-weak-scaling", out)


def _listed(
    found: Sequence[PlanAnswer],
    beside: Sequence[tuple[str, PlanAnswer]],
    scaled: Sequence[tuple[Question, PlanAnswer]],
) -> dict[str, object]:
    """Return for `--json` the plans, the cost of straddling domains, and the fastest plans as GPUs double."""
    by_gpus = [{"global_batch": one.global_batch, "mfu": one.mfu(best.step_s), **_shown(best)} for one, best in scaled]
    across = [{"where": where, **_shown(one)} for where, one in beside]
    return {"plans": [_shown(one) for one in found], "across": across, "weak_scaling": by_gpus}


def _model(name: str) -> PlannedModel:
    from simsched.applications.plans import read_model, shipped_llms
    from simsched.model.plans import PlannedModel

    is_file = name.endswith((".yaml", ".yml"))
    if not is_file and name not in shipped_llms():
        raise input_error(f"model '{name}'", "no such model is shipped", nearest(name, shipped_llms()))
    found = read_model(Path(name)) if is_file else shipped_llms()[name]
    if isinstance(found, PlannedModel):
        return found
    assert found.model is not None  # a model's file gives its shape
    click.echo(f"simsched: {name}: its table of measured plans applies in simulations, not here", err=True)
    return found.model


def _cluster(path: Path) -> Cluster:
    from simsched.experiment import read_experiment

    return read_experiment(path).spec.cluster.build()


def _parsed(text: str) -> Plan:
    from simsched.model.plans import Plan

    try:
        return Plan.parse(text)
    except ValueError as error:
        raise input_error("--plan", str(error)) from error


def _shown(answer: PlanAnswer) -> dict[str, object]:
    return {
        "plan": str(answer.plan), "gpus": answer.plan.gpus, "step_s": answer.step_s,
        "parts_s": answer.parts_s, "memory_gib": answer.memory_gib,
    }  # fmt: skip


def _print_plans(question: Question, found: Sequence[PlanAnswer]) -> None:
    headers = ("plan", "GPUs", "step s", *found[0].parts_s, "MFU %", "GiB")
    rows = [
        (
            str(one.plan), str(one.plan.gpus), f"{one.step_s:.3f}", *(f"{part:.3f}" for part in one.parts_s.values()),
            f"{100 * question.mfu(one.step_s):.1f}", f"{_on_gpu(one):.1f}",
        )
        for one in found
    ]  # fmt: skip
    click.echo(table(headers, rows))


def _on_gpu(answer: PlanAnswer) -> float:
    return sum(size for part, size in answer.memory_gib.items() if part != "host")


def _print_best(question: Question, best: PlanAnswer, tokens: float) -> None:
    steps = tokens / (question.global_batch * question.shape.sequence)
    days = steps * best.step_s / 86400
    click.echo(
        f"\n{best.plan}: {tokens:.3g} tokens are {steps:,.0f} steps of {question.global_batch} sequences, "
        f"{days:.1f} days, {days * 24 * question.gpus:,.0f} GPU-hours."
    )
    sizes = ", ".join(f"{part} {size:.2f}" for part, size in best.memory_gib.items() if size)
    click.echo(f"GiB of a GPU: {sizes}.")


def _apart(
    question: Question, cluster: Cluster | None, level: str, plan: Plan, space: PlanSpace | None
) -> list[tuple[str, PlanAnswer]]:
    from simsched.operators.training import straddling_site

    if cluster is None:
        raise input_error("--across", "needs a cluster with levels", "name an experiment with --experiment")
    apart = straddling_site(question, cluster, level)
    return [
        (f"the same plan across two of '{level}'", question.timed(plan, apart.tiers)),
        (f"the fastest plan across two of '{level}'", question.fastest(apart.tiers, 1, space)[0]),
    ]


def _fastest(question: Question, cluster: Cluster | None, model: str, space: PlanSpace | None) -> PlanAnswer:
    from simsched.operators.training import tight_site

    found = question.fastest(tight_site(question, cluster).tiers, 1, space)
    if not found:
        raise _nothing_fits(question, model)
    return found[0]


def _nothing_fits(question: Question, model: str) -> InputError:
    from simsched.operators.training import closest_plan

    where = f"model '{model}' on {question.gpus} GPUs of {question.hardware.gpu_type}"
    return input_error(
        where, f"no plan can run: {closest_plan(question)}", "try another number of GPUs, or --unmeasured"
    )


def _print_scaling(scaled: Sequence[tuple[Question, PlanAnswer]]) -> None:
    rows = [
        (
            str(one.gpus), str(one.global_batch), str(best.plan), f"{best.step_s:.3f}",
            f"{100 * one.mfu(best.step_s):.1f}", f"{100 * scaled[0][1].step_s / best.step_s:.1f}",
        )
        for one, best in scaled
    ]  # fmt: skip
    click.echo("\nAs GPUs and global batch double together:")
    click.echo(table(("GPUs", "sequences", "plan", "step s", "MFU %", "speed per GPU, % of the first"), rows))


def _draw(found: Sequence[tuple[str, PlanAnswer]], title: str, name: str, out: Path) -> None:
    import pandas as pd

    from simsched.report.figures import plan_parts, save

    data = pd.DataFrame([{"plan": label, **one.parts_s} for label, one in found])
    say_figures(save(*plan_parts(data, title=title), out, name))


def _read(path: Path, document: HardwareDocument) -> MeasuredSteps:
    from simsched.applications.plans import read_steps

    steps = read_steps(path, document)
    for reason, count in sorted(steps.left_out.items()):
        click.echo(f"simsched: {path}: {counted(count, 'row')} left out, {reason}", err=True)
    for note in steps.notes:
        click.echo(f"simsched: {path}: {note}", err=True)
    return steps


def _say_beyond(document: HardwareDocument, asked: Sequence[tuple[ModelShape, Plan | None]]) -> None:
    beyond = document.errors and document.errors.beyond(asked)
    if beyond:
        click.echo(f"simsched: {beyond}", err=True)


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
