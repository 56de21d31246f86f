"""`simsched application fit-plans`, `predict-plans` and `plans`: how long large models train with their plans."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from simsched.cli.options import JSON, NO_PLOTS, arg, command, opt
from simsched.cli.output import print_json, say_figures, table, write_file
from simsched.errors import InputError, input_error, nearest
from simsched.words import counted

if TYPE_CHECKING:
    from simsched.applications.calibration import ModelErrors
    from simsched.applications.plans import HardwareDocument, MeasuredSteps
    from simsched.model import Cluster
    from simsched.model.plans import ModelShape, Plan, PlannedModel, PlanSpace
    from simsched.operators.training import PlanAnswer, Question

_STEPS = arg("CSV")
_HARDWARE = opt("A shipped hardware profile, or the YAML file of one.", "--hardware", metavar="NAME")


@command(name="fit-plans")
def fit_plans(
    path: Path = _STEPS,
    *,
    hardware: str = _HARDWARE,
    out: Path = opt("The profile written.", default=Path("hardware.yaml")),
    as_json: bool = JSON,
) -> None:
    """Fit a hardware profile to measured steps; report errors by model, also with each model left out in turn.

    The fit starts from the profile's expectations for its `fitted` parameters.
    """
    from simsched.applications.calibration import errors_by_model, fit_profile
    from simsched.applications.plans import find_hardware, hardware_text

    begun = find_hardware(hardware)
    steps = _read(path, begun)
    fitted, predicted, left_out = fit_profile(begun, steps.rows)
    inside = errors_by_model(steps.rows, predicted)
    outside = [] if left_out is None else errors_by_model(steps.rows, left_out)
    write_file(out, hardware_text(fitted))
    numbers = {number: getattr(fitted.profile, number) for number in fitted.fitted}
    if as_json:
        print_json({"numbers": numbers, "errors": [*map(asdict, inside)], "left_out": [*map(asdict, outside)]})
        return
    click.echo("Errors of the fitted steps, in per cent:")
    _print_errors(inside)
    if outside:
        click.echo("\nErrors of each model, predicted from the others:")
        _print_errors(outside)
    click.echo("\n" + ", ".join(f"{number} {value:.4g}" for number, value in numbers.items()))
    click.echo(out)


@command(name="predict-plans")
def predict_plans(
    path: Path = _STEPS,
    *,
    hardware: str = _HARDWARE,
    show_rows: bool = opt("Also print the prediction of each row.", "--rows"),
    as_json: bool = JSON,
) -> None:
    """Predict measured steps from a hardware profile that was not fitted to them; report errors by model.

    The command warns about rows outside the range of the measured models and plans.
    """
    from simsched.applications.calibration import errors_by_model, predict
    from simsched.applications.plans import find_hardware

    document = find_hardware(hardware)
    steps = _read(path, document).rows
    predicted = predict(document.profile, steps)
    errors = errors_by_model(steps, predicted)
    rows = [
        {"line": step.line, "model": step.model, "plan": str(step.plan), "seconds": step.seconds, "predicted": seconds}
        for step, seconds in zip(steps, predicted.tolist(), strict=True)
    ]
    _say_beyond(document, [(step.shape, step.plan) for step in steps])
    if as_json:
        print_json({"errors": [*map(asdict, errors)], "rows": rows})
        return
    if show_rows:
        cells = [
            (one["model"], one["plan"], f"{one['seconds']:.3f}", f"{one['predicted']:.3f}",
             f"{100 * (one['predicted'] / one['seconds'] - 1):+.1f}")
            for one in rows
        ]  # fmt: skip
        click.echo(table(("model", "plan", "measured s", "predicted s", "%"), cells, left=2) + "\n")
    click.echo("Errors in per cent:")
    _print_errors(errors)


@command()
def plans(
    model: str = arg(),
    *,
    hardware: str = _HARDWARE,
    gpus: int = opt("GPUs of the job.", type=click.IntRange(min=1)),
    global_batch: int | None = opt("Sequences per step. [default: the model's]", type=click.IntRange(min=1)),
    plan: str | None = opt("One plan, such as 't8 p4 d16 b1 v2 sp zero1'.", metavar="PLAN"),
    tokens: float = opt("Tokens to train on.", type=click.FloatRange(min=1), default=1e12),
    experiment: Path | None = opt("Take cluster and tiers from an experiment."),
    across: str | None = opt("Show the cost of straddling two domains of a level of that cluster.", metavar="LEVEL"),
    weak_scaling: int = opt(
        "Show the fastest plan as GPUs and global batch double together this many times.",
        type=click.IntRange(0, 16),
        show_default=False,
        default=0,
    ),
    top: int = opt("Plans to show.", type=click.IntRange(1, 100), default=5),
    unmeasured: bool = opt("Also consider kinds of plans that were never measured."),
    out: Path = opt(metavar="DIR", default=Path("figures")),
    no_plots: bool = NO_PLOTS,
    as_json: bool = JSON,
) -> None:
    """Show how long a model trains on some GPUs with the fastest plans, and how a step's time is spent.

    MODEL is a shipped one, or the YAML file of one.
    """
    from simsched.applications.plans import find_hardware
    from simsched.model.plans import EVERYTHING
    from simsched.operators.training import Question, tight_site

    document, known = find_hardware(hardware), _model(model)
    question = Question(known.shape, document.profile, gpus, global_batch or known.global_batch)
    cluster = None if experiment is None else _cluster(experiment)
    site, space = tight_site(question, cluster), EVERYTHING if unmeasured else None
    asked = None if plan is None else [question.of_plan(_parsed(plan), site.tiers)]
    found = asked or question.fastest(site.tiers, top, space)
    if not found:
        raise _nothing_fits(question, model)
    beside = [] if across is None else _apart(question, cluster, across, found[0].plan, space)
    beside = beside if plan is None else beside[:1]
    doubled = range(weak_scaling + 1) if weak_scaling else ()
    grown = [replace(question, gpus=gpus << k, global_batch=question.global_batch << k) for k in doubled]
    scaled = [(one, _fastest(one, cluster, model, space)) for one in grown]
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
        _draw_all(question, found, scaled, known.name, out)


def _draw_all(
    question: Question,
    found: Sequence[PlanAnswer],
    scaled: Sequence[tuple[Question, PlanAnswer]],
    name: str,
    out: Path,
) -> None:
    kind = question.hardware.gpu_type.upper()
    _draw([(str(one.plan), one) for one in found], f"A step on {question.gpus} {kind}, by plan", f"{name}-plans", out)
    if scaled:
        growing = [(f"{one.gpus} GPUs: {best.plan}", best) for one, best in scaled]
        _draw(growing, f"A step on {kind}, as GPUs and batch double together", f"{name}-weak-scaling", out)


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


def _print_errors(found: Sequence[ModelErrors]) -> None:
    rows = [
        (one.model, str(one.rows), f"{100 * one.mean:.1f}", f"{100 * one.worst:.1f}",
         "-" if one.ranked is None else f"{100 * one.ranked:.1f}")
        for one in found
    ]  # fmt: skip
    click.echo(table(("model", "steps", "mean", "worst", "plan ranked first, over the best"), rows))
