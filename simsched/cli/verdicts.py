"""`simsched verdicts`: compare ratios of policies with published ones, and fill pages with tables from results."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from simsched.cli.output import table
from simsched.errors import input_error
from simsched.words import counted

if TYPE_CHECKING:
    from simsched.report import FilledPage
    from simsched.results import Run

#: The default pages of `--check`.
_PAGES = Path("docs")
_DIFFERENT = 1


@click.command()
@click.argument("folder", metavar="RESULTS", type=click.Path(path_type=Path))
@click.option("--metric", default="jct_mean_h", show_default=True, help="The metric whose ratios to judge.")
@click.option(
    "--page", "named", type=click.Path(path_type=Path), metavar="PATH", multiple=True,
    help="Fill the tables of this Markdown page, or of all pages below this folder. Repeatable.",
)  # fmt: skip
@click.option(
    "--check", is_flag=True,
    help="Only check whether the pages (by default those below docs) match the results; exit code 1 if not. A table"
    " without results is named and not checked.",
)  # fmt: skip
def verdicts(folder: Path, metric: str, named: tuple[Path, ...], check: bool) -> None:
    """Judge ratios of policies against the published ones, or fill pages with them.

    RESULTS is the folder of all runs, or that of one. A ratio matches if its 95 % interval is narrower than 10 % of it
    and contains the ratio of the published simulator. Otherwise it has the same direction, has the right direction
    without a published ratio, or differs; if the interval is wider than 20 % of the ratio, it is undecided.
    """
    if named or check:
        pages = [_page(path, folder) for place in named or (_PAGES,) for path in _pages(place)]
        _check(pages, folder) if check else _write(pages)
    else:
        _print(folder, metric)


def _pages(place: Path) -> list[Path]:
    from simsched.report import pages_in

    if not place.is_dir():
        return [place]
    found = pages_in(place)
    if not found:
        raise input_error(place, "has no page with tables to fill", "name a page, or a folder of pages, with --page")
    return found


def _page(path: Path, results: Path) -> FilledPage:
    from simsched.report import filled

    return filled(path, results)


def _write(pages: Sequence[FilledPage]) -> None:
    for page in pages:
        same = page.text == page.path.read_text(encoding="utf-8")
        page.path.write_text(page.text, encoding="utf-8")
        click.echo(f"{page.path}: {'as before' if same else 'tables updated'}{_without(page)}")


def _check(pages: Sequence[FilledPage], results: Path) -> None:
    for page in pages:
        checked = len(page.same) + len(page.changed)
        click.echo(f"{page.path}: {len(page.same)} of {counted(checked, 'table')} up to date{_without(page)}")
        for name in page.changed:
            click.echo(f"  does not match the results: {name}")
    if not any(page.same or page.changed for page in pages):
        raise input_error(
            results, "has no results for any table on these pages", "first run the experiments that they show"
        )
    if any(page.changed for page in pages):
        click.get_current_context().exit(_DIFFERENT)


def _without(page: FilledPage) -> str:
    return f"; left unchanged, without results: {', '.join(page.missing)}" if page.missing else ""


def _print(folder: Path, metric: str) -> None:
    from simsched.cli.report import run_folders
    from simsched.report import marks_legend, ratios_table
    from simsched.results import comparison, judge, read_run

    runs = [read_run(one) for one in run_folders(folder)]
    tables = [(run, ratios_table(judge(run, metric))) for run in runs]
    for run, judged in tables:
        if judged.rows:
            click.echo(f"{run.name}: {run.published_source}")
            click.echo(table(judged.headers, judged.rows, left=judged.text_columns))
            for note in marks_legend(comparison(run)):
                click.echo(note)
            click.echo()
    if not any(judged.rows for _, judged in tables):
        click.echo(f"{folder}: nothing to judge: {_why(runs, metric)}")


def _why(runs: Sequence[Run], metric: str) -> str:
    if any(run.published_left_out for run in runs):
        return "the settings of the runs differ from those with published values"
    return f"no run has two rows with a published {metric}, as those of `simsched run figure8a-load` have"
