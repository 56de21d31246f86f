"""`simsched verdicts`: whether policies compare as published, and pages whose tables come from results."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from simsched.cli.output import table
from simsched.errors import input_error

if TYPE_CHECKING:
    from simsched.results.reader import Run


@click.command()
@click.argument("folder", metavar="RESULTS", type=click.Path(path_type=Path))
@click.option("--metric", default="jct_mean_h", show_default=True, help="The metric whose ratios are judged.")
@click.option("--page", type=click.Path(path_type=Path), metavar="FILE", help="Fill the tables of this Markdown page.")
@click.option("--check", is_flag=True, help="Only tell whether the page is as the results have it; exit code 1 if not.")
def verdicts(folder: Path, metric: str, page: Path | None, check: bool) -> None:
    """Judge ratios of policies against the published ones, or fill a page with them.

    RESULTS is the folder of all runs, or that of one. A ratio matches where its 95 % interval is narrower than 10 % of
    it and contains that of the published simulator; else it has the same direction or differs; without an interval, or
    where that contains 1, there is no verdict.
    """
    if page is not None:
        _fill(page, folder, check=check)
    elif check:
        raise input_error("--check", "checks a page", "name one with --page")
    else:
        _print(folder, metric)


def _fill(page: Path, folder: Path, *, check: bool) -> None:
    from simsched.report.filled_page import filled

    text = filled(page, folder)
    same = text == page.read_text(encoding="utf-8")
    if check:
        click.echo(f"{page} is {'as the results have it' if same else 'not as the results have it'}")
        raise click.exceptions.Exit(0 if same else 1)
    page.write_text(text, encoding="utf-8")
    click.echo(f"{page}: {'as before' if same else 'tables made anew'}")


def _print(folder: Path, metric: str) -> None:
    from simsched.cli.report import run_folders
    from simsched.report.filled_page import ratios_table
    from simsched.results.reader import read_run
    from simsched.results.verdicts import judge

    runs = [read_run(one) for one in run_folders(folder)]
    tables = [(run, ratios_table(judge(run, metric))) for run in runs]
    for run, judged in tables:
        if judged.rows:
            click.echo(f"{run.name}: {run.published_source}")
            click.echo(table(judged.headers, judged.rows, left=judged.text_columns))
            click.echo()
    if not any(judged.rows for _, judged in tables):
        click.echo(f"{folder}: nothing to judge: {_why(runs, metric)}")


def _why(runs: Sequence[Run], metric: str) -> str:
    if any(run.published_left_out for run in runs):
        return "the runs have other settings than those whose values were published"
    return f"no run has two rows with a published {metric}, as those of `simsched run figure8a-load` have"
