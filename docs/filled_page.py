"""A Markdown page whose tables are filled from results and cannot diverge from them.

    python docs/filled_page.py RESULTS [--metric METRIC]      # judge ratios of policies against the published ones
    python docs/filled_page.py RESULTS --page PAGE            # fill the tables of a page, or of all in a folder
    python docs/filled_page.py RESULTS --check                # only check whether the pages match the results

A table stands between two comments; anything between them is replaced:

    <!-- simsched: figures RUN METRIC... -->       means over seeds and files of jobs, published values in brackets
    <!-- simsched: ratios RUN METRIC [over ROW] --> ratios of policies with their verdicts
    <!-- simsched: differences RUN METRIC... [over ROW] --> relative differences from a policy, run by run
    <!-- simsched: order RUN METRIC -->            whether policies rank as published, at each point of the sweep
    <!-- simsched: digits RUN METRIC -->           a metric to the last digit beside the published one, in its own unit
    <!-- simsched: days RUN over ROW -->           change of the mean JCT against a row, by day of submission
    <!-- simsched: end -->

Which runs a page needs follows from these comments alone.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import isnan
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from docs.verdicts import UNDECIDED, Judged, Ranked, judge, ranks
from simsched.errors import InputError, input_error
from simsched.report.table import TextTable
from simsched.report.tables import comparison_table, difference_table, marks_legend
from simsched.report.units import Shown, number, shown_unit
from simsched.results import RUN_FILE, Row, Run, comparison, paired_differences, read_run
from simsched.words import counted

_TABLE = re.compile(
    r"(?P<head><!-- simsched: (?P<kind>figures|ratios|differences|order|digits|days) (?P<run>\S+) (?P<rest>.*?) -->\n)"
    r"(?P<content>.*?)(?=<!-- simsched: end -->)",
    re.DOTALL,
)
#: A metric, whose brackets may contain spaces: `rho_above_1[all but ncf]`.
METRIC = re.compile(r"[^\s\[]+(?:\[[^\]]*\])?")


@dataclass(frozen=True)
class FilledPage:
    """A page with its tables filled from results.

    `same` and `changed` name the tables with results, as `ratios table2 jct_mean_h`; `missing` names the runs without
    any.
    """

    path: Path
    text: str
    same: tuple[str, ...]
    changed: tuple[str, ...]
    missing: tuple[str, ...]


def filled(path: Path, results: Path) -> FilledPage:
    """Fill all tables of a page from a folder of runs.

    A table of a missing run stays unchanged, or states that the run is missing if it was empty. Raises `InputError` for
    a page that cannot be read or has no table to fill.
    """
    page = _read(path)
    found = list(_TABLE.finditer(page))
    if not found:
        raise input_error(path, "has no table to fill", "mark one with '<!-- simsched: ratios RUN METRIC -->'")
    contents = {one.start(): _content(one, results) for one in found}
    text = _TABLE.sub(lambda one: one["head"] + contents[one.start()], page)
    there = [one for one in found if _has(results, one["run"])]
    same = [_name(one) for one in there if contents[one.start()] == one["content"]]
    changed = [_name(one) for one in there if contents[one.start()] != one["content"]]
    missing = dict.fromkeys(one["run"] for one in found if not _has(results, one["run"]))
    return FilledPage(path, text, tuple(same), tuple(changed), tuple(missing))


def runs_on(path: Path) -> tuple[str, ...]:
    """Name the runs whose results the tables of a page show, in the order of the page."""
    return tuple(dict.fromkeys(one["run"] for one in _TABLE.finditer(_read(path))))


def pages_in(folder: Path) -> list[Path]:
    """List the Markdown pages below a folder that have tables to fill."""
    return [path for path in sorted(folder.rglob("*.md")) if _TABLE.search(_read(path))]


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise input_error(path, f"cannot be read ({error})", "name a Markdown page") from error


def _has(results: Path, run: str) -> bool:
    return (results / run / RUN_FILE).is_file()


def _name(found: re.Match[str]) -> str:
    return " ".join((found["kind"], found["run"], *found["rest"].split()))


def _content(found: re.Match[str], results: Path) -> str:
    if not _has(results, found["run"]):
        return found["content"] or f"Not run: there are no results of `{found['run']}`.\n"
    run = read_run(results / found["run"])
    metrics, _, over = found["rest"].partition(" over ")
    if found["kind"] == "figures":
        table = _figures(run, METRIC.findall(found["rest"]))
    elif found["kind"] == "order":
        table = order_table(ranks(run, found["rest"].strip()))
    elif found["kind"] == "digits":
        table = digits_table(comparison(run), found["rest"].strip())
    elif found["kind"] == "days":
        table = days_table(run, found["rest"].removeprefix("over").strip())
    elif found["kind"] == "differences":
        rows = comparison(run, run.replicated_over)
        reference = over.strip() or run.reference or rows[0].policy
        table = difference_table(paired_differences(rows, reference), METRIC.findall(metrics))
    else:
        table = ratios_table(judge(run, metrics.strip(), over.strip() or None))
    legend = " ".join(marks_legend(comparison(run), signals=False))
    return replace(table, notes=(*table.notes, *([legend] if legend else []))).markdown()


def _figures(run: Run, metrics: Sequence[str]) -> TextTable:
    rows = comparison(run, run.replicated_over)
    table = comparison_table(rows, metrics, ranges=False)
    seeds = [str(len(row.cells)) for row in rows]
    lines = tuple(
        (*line[: table.text_columns], n, *line[table.text_columns :]) for line, n in zip(table.rows, seeds, strict=True)
    )
    headers = (*table.headers[: table.text_columns], "seeds", *table.headers[table.text_columns :])
    return TextTable(table.title, headers, lines, (), table.text_columns)


def ratios_table(found: Sequence[Judged]) -> TextTable:
    """Show ratios with the published ones, intervals, verdicts and the underlying levels."""
    means = [mean for one in found for mean in one.means if mean is not None]
    shown = shown_unit(found[0].unit if found else "", means)
    headers = ("row", "over", "verdict", "seeds", "ratio", "95 % interval", "published", "ratio of means",
               shown.title("means"), shown.title("published levels"))  # fmt: skip
    lines = tuple(
        (
            one.row,
            one.over,
            f"{one.verdict} ({one.doubt})" if one.verdict == UNDECIDED else one.verdict,
            "-" if one.ratio is None else str(one.ratio.n),
            "-" if one.ratio is None else number(one.ratio.mean),
            _interval(one),
            number(one.published),
            "-" if one.of_means is None else number(one.of_means),
            _levels(one.means, shown),
            "-" if one.published_levels is None else _levels(one.published_levels, shown),
        )
        for one in found
    )
    return TextTable("Verdicts", headers, lines, (), 3)


def _levels(levels: tuple[float | None, float | None], shown: Shown) -> str:
    return " over ".join("-" if one is None else number(one * shown.factor) for one in levels)


def order_table(found: Sequence[Ranked]) -> TextTable:
    """Count the pairs of policies that are separated and rank as published, and name those that are not."""
    headers = ("at", "verdict", "reversed", "undecided", "seeds", "pairs", "separated", "in published order")
    lines = tuple(
        (
            one.point or "-",
            f"{one.verdict} ({one.separated} of {one.pairs} pairs separated)",
            ", ".join(one.reversed_pairs) or "none",
            f"{len(one.undecided_pairs)}: {', '.join(one.undecided_pairs)}" if one.undecided_pairs else "none",
            str(one.seeds),
            str(one.pairs),
            str(one.separated),
            str(one.in_order),
        )
        for one in found
    )
    return TextTable("Order of the policies", headers, lines, (), 4)


def digits_table(rows: Sequence[Row], metric: str) -> TextTable:
    """Show means with the published ones, to as many decimals as were published, and their agreement."""
    lines = []
    for row in rows:
        estimate, published = row.estimate(metric), row.published.get(metric)
        if estimate is not None:
            decimals = len(repr(published).partition(".")[2]) if published is not None else 1
            printed, found = ("-" if one is None else f"{one:,.{decimals}f}" for one in (published, estimate.mean))
            lines.append((row.shown_name, _agreement(estimate.mean, published, same=printed == found), printed, found))
    return TextTable(metric, ("row", "verdict", f"published {metric}", f"{metric} here"), tuple(lines), (), 2)


def days_table(run: Run, reference: str) -> TextTable:
    """Show how much longer than under the reference the jobs of each day take, in per cent, with 95 % intervals.

    Raises `InputError` if the run has no jobs to compare with that row.
    """
    from simsched.report.figures.history import days_data, paired_jobs

    jobs = paired_jobs(run, reference, run.replicated_over)
    if jobs.empty:
        raise input_error(run.folder, f"has nothing to compare with '{reference}'", "name a policy of the run")
    changes = days_data(jobs)
    days = sorted(set(changes["day"]), key=int)
    lines = []
    for key, part in changes.groupby(["group", "policy", "point"], sort=False):
        group, policy, point = map(str, key)
        found = zip(part["day"], part["mean"], part["low"], part["high"], strict=True)
        of_day = {day: _change(mean, low, high) for day, mean, low, high in found}
        row = f"{policy} {point}".strip()
        lines.append((group, row, str(part["seeds"].max()), *(of_day.get(day, "-") for day in days)))
    return TextTable("Days", ("jobs", "policy", "seeds", *(f"day {day} (%)" for day in days)), tuple(lines), (), 2)


def _change(mean: float, low: float, high: float) -> str:
    interval = "" if isnan(low) else f" [{100 * low:+.0f}, {100 * high:+.0f}]"
    return f"{100 * mean:+.0f}{interval}"


def _agreement(found: float, published: float | None, *, same: bool) -> str:
    if published is None:
        return "-"
    return "every digit" if same else f"{abs(found / published - 1):.2%} off" if published else "differs"


def _interval(one: Judged) -> str:
    low, high = (None, None) if one.ratio is None else (one.ratio.low, one.ratio.high)
    return "-" if low is None or high is None else f"{number(low)} to {number(high)}"


def _pages(place: Path) -> list[Path]:
    if not place.is_dir():
        return [place]
    pages = pages_in(place)
    if not pages:
        raise input_error(place, "has no page with tables to fill", "name a page, or a folder of pages, with --page")
    return pages


def _write(pages: Sequence[FilledPage]) -> int:
    for page in pages:
        same = page.text == page.path.read_text(encoding="utf-8")
        page.path.write_text(page.text, encoding="utf-8")
        sys.stdout.write(f"{page.path}: {'as before' if same else 'tables updated'}{_without(page)}\n")
    return 0


def _check(pages: Sequence[FilledPage], results: Path) -> int:
    for page in pages:
        tables = counted(len(page.same) + len(page.changed), "table")
        sys.stdout.write(f"{page.path}: {len(page.same)} of {tables} up to date{_without(page)}\n")
        for name in page.changed:
            sys.stdout.write(f"  does not match the results: {name}\n")
    if not any(page.same or page.changed for page in pages):
        raise input_error(results, "has no results for any table on these pages", "first run their experiments")
    return int(any(page.changed for page in pages))


def _without(page: FilledPage) -> str:
    return f"; left unchanged, without results: {', '.join(page.missing)}" if page.missing else ""


def _print(results: Path, metric: str) -> int:
    """Print the verdicts of all runs in a folder, or of the one that it is."""
    runs_in = sorted(path.parent for path in results.glob(f"*/{RUN_FILE}"))
    places = [results] if (results / RUN_FILE).is_file() else runs_in
    runs = [read_run(place) for place in places]
    tables = [(run, ratios_table(judge(run, metric))) for run in runs]
    for run, table in tables:
        if table.rows:
            legend = "\n".join(marks_legend(comparison(run)))
            sys.stdout.write(f"{run.name}: {run.published_source}\n{table.markdown()}{legend}\n\n")
    if not any(table.rows for _, table in tables):
        why = f"no run has two rows with a published {metric}, as those of `simsched run figure8a-load` have"
        if any(run.published_left_out for run in runs):
            why = "the settings of the runs differ from those with published values"
        sys.stdout.write(f"{results}: nothing to judge: {why}\n")
    return 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Judge ratios, or fill or check pages."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path, help="folder of all runs, or of one")
    parser.add_argument("--metric", default="jct_mean_h", help="the metric whose ratios to judge")
    parser.add_argument("--page", type=Path, action="append", default=[], help="a page, or a folder; repeatable")
    parser.add_argument("--check", action="store_true", help="only check the pages, by default those below docs")
    given = parser.parse_args(arguments)
    try:
        if not given.page and not given.check:
            return _print(given.results, given.metric)
        pages = [filled(path, given.results) for place in given.page or [Path("docs")] for path in _pages(place)]
        return _check(pages, given.results) if given.check else _write(pages)
    except InputError as error:
        sys.stderr.write(f"Error: {error}\n")
        return 2


if __name__ == "__main__":
    sys.exit(main())
