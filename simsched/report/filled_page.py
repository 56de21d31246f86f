"""A Markdown page whose tables come from results, so that its figures cannot part from them.

A table stands between two comments, and whatever stands there is replaced:

    <!-- simsched: figures RUN METRIC... -->       means over seeds and files of jobs, published values in brackets
    <!-- simsched: ratios RUN METRIC [over ROW] --> ratios of policies with their verdicts
    <!-- simsched: order RUN METRIC -->            whether policies rank as published, at each point of the sweep
    <!-- simsched: digits RUN METRIC -->           a metric to the last digit beside the published one, in its own unit
    <!-- simsched: end -->
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from simsched.errors import input_error
from simsched.report.tables import TextTable, comparison_table
from simsched.report.units import number
from simsched.results.compare import Row, comparison
from simsched.results.orders import Ranked, ranks
from simsched.results.reader import RUN_FILE, Run, read_run
from simsched.results.verdicts import WORKLOAD_FILE, Judged, judge

_TABLE = re.compile(
    r"(?P<head><!-- simsched: (?P<kind>figures|ratios|order|digits) (?P<run>\S+) (?P<rest>.*?) -->\n)"
    r".*?(?=<!-- simsched: end -->)",
    re.DOTALL,
)
#: A metric, whose brackets may hold blanks: `rho_above_1[all but ncf]`.
METRIC = re.compile(r"[^\s\[]+(?:\[[^\]]*\])?")


def fill(page: str, results: Path) -> str:
    """Return a page with all its tables made anew from a folder of runs; one that is missing says so."""
    return _TABLE.sub(lambda found: found["head"] + _content(found, results) + "\n", page)


def _content(found: re.Match[str], results: Path) -> str:
    folder = results / found["run"]
    if not (folder / RUN_FILE).is_file():
        return f"Not run: there are no results of `{found['run']}`."
    run = read_run(folder)
    if found["kind"] == "figures":
        return markdown(_figures(run, METRIC.findall(found["rest"])))
    if found["kind"] == "order":
        return markdown(order_table(ranks(run, found["rest"].strip())))
    if found["kind"] == "digits":
        return markdown(digits_table(comparison(run), found["rest"].strip()))
    metric, _, over = found["rest"].partition(" over ")
    return markdown(ratios_table(judge(run, metric.strip(), over.strip() or None)))


def _figures(run: Run, metrics: Sequence[str]) -> TextTable:
    rows = comparison(run, [key for key in run.swept if key == WORKLOAD_FILE])
    table = comparison_table(rows, metrics)
    seeds = [str(len(row.cells)) for row in rows]
    lines = tuple(
        (*line[: table.text_columns], n, *line[table.text_columns :]) for line, n in zip(table.rows, seeds, strict=True)
    )
    headers = (*table.headers[: table.text_columns], "seeds", *table.headers[table.text_columns :])
    return TextTable(table.title, headers, lines, (), table.text_columns)


def ratios_table(found: Sequence[Judged]) -> TextTable:
    """Set ratios beside the published ones, with the interval and the verdict."""
    headers = ("row", "over", "verdict", "seeds", "ratio", "95 % interval", "published")
    lines = tuple(
        (
            one.row,
            one.over,
            one.verdict,
            str(one.ratio.n),
            number(one.ratio.mean),
            _interval(one),
            number(one.published),
        )
        for one in found
    )
    return TextTable("Verdicts", headers, lines, (), 3)


def order_table(found: Sequence[Ranked]) -> TextTable:
    """Count the pairs of policies that rank as published, and name those that do not."""
    headers = ("at", "verdict", "reversed", "seeds", "pairs", "in published order", "with an interval beyond 1")
    lines = tuple(
        (
            one.point or "-",
            one.verdict,
            ", ".join(one.reversed_pairs) or "none",
            str(one.seeds),
            str(one.pairs),
            str(one.in_order),
            str(one.sure),
        )
        for one in found
    )
    return TextTable("Order of the policies", headers, lines, (), 3)


def digits_table(rows: Sequence[Row], metric: str) -> TextTable:
    """Set means beside the published ones, to as many decimals as were published, and say how far they agree."""
    lines = []
    for row in rows:
        estimate, published = row.estimate(metric), row.published.get(metric)
        if estimate is not None:
            decimals = len(repr(published).partition(".")[2]) if published is not None else 1
            printed, found = ("-" if one is None else f"{one:,.{decimals}f}" for one in (published, estimate.mean))
            lines.append((row.name, _agreement(estimate.mean, published, same=printed == found), printed, found))
    return TextTable(metric, ("row", "verdict", f"published {metric}", f"{metric} here"), tuple(lines), (), 2)


def _agreement(found: float, published: float | None, *, same: bool) -> str:
    if published is None:
        return "-"
    return "every digit" if same else f"{abs(found / published - 1):.2%} off" if published else "differs"


def _interval(one: Judged) -> str:
    low, high = one.ratio.low, one.ratio.high
    return "-" if low is None or high is None else f"{number(low)} to {number(high)}"


def markdown(table: TextTable) -> str:
    """Write a table in Markdown, text to the left and numbers to the right."""
    rules = ["---" if place < table.text_columns else "---:" for place in range(len(table.headers))]
    lines = [table.headers, tuple(rules), *table.rows]
    return "\n".join("| " + " | ".join(" ".join(cell.split()) for cell in line) + " |" for line in lines)


def filled(path: Path, results: Path) -> str:
    """Read a page and fill it; raises `InputError` where it cannot be read or has no table to fill."""
    try:
        page = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise input_error(path, f"cannot be read ({error})", "name a Markdown page") from error
    if not _TABLE.search(page):
        raise input_error(path, "has no table to fill", "mark one with '<!-- simsched: ratios RUN METRIC -->'")
    return fill(page, results)
