"""Writes runs as one self-contained HTML page, without external scripts, fonts or pictures."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib.resources import files
from itertools import zip_longest
from pathlib import Path

import numpy as np

from simsched.files import write_text
from simsched.outlets import html_text
from simsched.report.figures.draw import MOST_ROWS, run_figures
from simsched.report.figures.purposes import type_metrics
from simsched.report.figures.svg import Picture, inline_svg
from simsched.report.page.interactive import interactive_occupancy, occupancy_script
from simsched.report.page.provenance import experiment_text, provenance
from simsched.report.tables import TextTable, comparison_table, difference_table, runs_tables, seeds_table
from simsched.results import Cell, Reproduction, Row, Run, comparison, paired_differences
from simsched.words import counted

#: The number of jobs listed in the details of a policy.
_MOST_JOBS = 20
_JOB_COLUMNS = ("job_id", "application", "num_gpus", "submit_time_s", "jct_s", "queueing_s", "restarts")
#: A table cell with a published value: `0.52 ±0.10 (0.76)`.
_WITH_PUBLISHED = re.compile(r"^(.*?)(?: \(([^()]*)\))?$")


_OWN = ("page.css", "page.js")


@dataclass(frozen=True)
class Part:
    """A run on the page; swept keys in `replicate_over` count as replications, as in `comparison`."""

    run: Run
    reproduction: Reproduction
    replicate_over: Collection[str] = ()

    @cached_property
    def rows(self) -> Sequence[Row]:
        """The run's policies compared."""
        return comparison(self.run, self.replicate_over)


#: A section to compose: its run, its anchor and its heading.
Wanted = tuple[Part, str, str]
Composed = Callable[[Sequence[Wanted]], list[str]]


def write_report(parts: Sequence[Part], title: str, path: Path, composed: Composed | None = None) -> None:
    """Write the page of these runs atomically; the same results give the same bytes.

    `composed` replaces `compose`, for instance to use several processes.
    """
    write_text(Path(path), report_page(parts, title, composed))


def report_page(parts: Sequence[Part], title: str, composed: Composed | None = None) -> str:
    """Compose the page: a section for each run and, if there are several, a list of them."""
    alone = len(parts) == 1
    wanted = [
        (part, f"run{number}", "" if alone else f"<h2>{html_text(part.run.name)}</h2>")
        for number, part in enumerate(parts, start=1)
    ]
    sections = "\n".join((composed or compose)(wanted))
    sections = ("" if alone else _side_by_side(parts)) + sections
    script = occupancy_script() if 'class="block occupancy"' in sections else ""
    kind = f"Results of simulated GPU clusters, written by simsched {html_text(_version(parts))}"
    return page_of(title, kind, sections, contents=_contents(parts), script=script)


def compose(wanted: Sequence[Wanted]) -> list[str]:
    """Compose sections, one after the other."""
    return [_section(*one) for one in wanted]


def _side_by_side(parts: Sequence[Part]) -> str:
    """Show each metric of all runs in one table, whose numbers link to the underlying cells and jobs."""
    runs = {f"{number}. {part.run.name}": part.rows for number, part in enumerate(parts, start=1)}
    places = [{row.shown_name: f"run{number}-behind{place}" for place, row in enumerate(rows)}
              for number, rows in enumerate(runs.values(), start=1)]  # fmt: skip
    blocks = []
    for number, table in enumerate(runs_tables(runs)):
        links = [[places[column].get(name, "") for column in range(len(places))] for name, *_ in table.rows]
        block = table_block(table, f"beside-{number}", links)
        title = html_text(table.title)
        blocks.append(f"<details{'' if number else ' open'}><summary>{title}</summary>\n{block}</details>")
    return '<section class="run" id="beside">\n<h2>Runs side by side</h2>\n' + "\n".join(blocks) + "</section>\n"


def _version(parts: Sequence[Part]) -> str:
    """Name the versions of simsched that made the results."""
    found = {_text(cell.manifest.get("environment"), "simsched") for part in parts for cell in part.run.cells}
    return ", ".join(sorted(found - {""}))


def _text(mapping: object, key: str) -> str:
    return str(mapping.get(key) or "") if isinstance(mapping, Mapping) else ""


def _contents(parts: Sequence[Part]) -> str:
    if len(parts) < 2:
        return ""
    items = "\n".join(
        f'<li><a href="#run{number}">{html_text(part.run.name)}</a> '
        f"<span>{html_text(_first_sentence(part.run))}</span></li>"
        for number, part in enumerate(parts, start=1)
    )
    return f'<nav aria-label="Contents">\n<h2>Contents</h2>\n<ol>\n{items}\n</ol>\n</nav>\n'


def _description(run: Run) -> str:
    return _text(run.experiment, "description").strip()


def _first_sentence(run: Run) -> str:
    return re.split(r"(?<=[.!?:])\s", _description(run), maxsplit=1)[0]


def _section(part: Part, anchor: str, heading: str) -> str:
    run = part.run
    rows = part.rows
    reference = run.reference or rows[0].policy
    table = comparison_table(rows, title="Policies compared", published_source=run.published_source, run=run)
    blocks = [
        heading,
        f"<p>{html_text(_description(run))}</p>" if _description(run) and not run.changed else "",
        _missing(part),
        table_block(table, f"{anchor}-comparison", [[f"{anchor}-behind{place}"] for place in range(len(rows))]),
        *(behind(row, rows, f"{anchor}-behind{place}") for place, row in enumerate(rows)),
    ]
    differences = paired_differences(rows, reference)
    if differences:
        blocks.append(table_block(difference_table(differences), f"{anchor}-differences"))
    by_type = type_metrics(rows, ("gpu_utilisation", "gpu_hours", "jct_mean_s"))
    if by_type:
        blocks.append(table_block(comparison_table(rows, by_type, title="By GPU type"), f"{anchor}-types"))
    blocks += [
        interactive_occupancy(rows, anchor),
        _figures(part, anchor),
        _reproduction(part.reproduction, run),
        provenance(run),
        experiment_text(run),
    ]
    body = "\n".join(block for block in blocks if block)
    return f'<section class="run" id="{anchor}">\n{body}\n</section>'


def _missing(part: Part) -> str:
    missing = part.run.missing
    if not missing:
        return ""
    names = ", ".join(missing[:MOST_ROWS]) + (", ..." if len(missing) > MOST_ROWS else "")
    count = len(missing)
    return f'<p class="warning">{count} of {count + len(part.run.cells)} cells are missing: {html_text(names)}.</p>'


def table_block(table: TextTable, anchor: str, links: Sequence[Sequence[str]] = ()) -> str:
    """Return a table for a page, below a heading with the id `anchor`.

    `links` are the ids of the details of the rows: one for each number, or one for a whole row.
    """
    kinds = [' class="text"' if 0 < place < table.text_columns else "" for place in range(len(table.headers))]
    head = "".join(
        f'<th scope="col"{kind}>{html_text(header)}</th>' for header, kind in zip(table.headers, kinds, strict=True)
    )
    body = "\n".join(
        _row(row, table.text_columns, ids)
        for row, ids in zip_longest(table.rows, links[: len(table.rows)], fillvalue=())
    )
    notes = "".join(f"<p>{html_text(note)}</p>" for note in table.notes)
    return f"""<div class="block">
<h3 id="{anchor}">{html_text(table.title)}</h3>
<div class="scroll" tabindex="0" role="region" aria-labelledby="{anchor}"><table>
<thead><tr>{head}</tr></thead>
<tbody>
{body}
</tbody>
</table></div>
<div class="notes">{notes}</div>
</div>"""


def _row(cells: Sequence[str], text_columns: int, ids: Sequence[str] = ()) -> str:
    name = f'<th scope="row">{html_text(cells[0])}</th>'
    texts = "".join(f'<td class="text">{html_text(cell)}</td>' for cell in cells[1:text_columns])
    numbers = cells[text_columns:]
    of_each = ids if len(ids) == len(numbers) else [*ids[:1]] * len(numbers)
    return f"<tr>{name}{texts}{''.join(map(_number, numbers, [*of_each, *[''] * len(numbers)]))}</tr>"


def _number(cell: str, behind_it: str = "") -> str:
    """Format a value, its interval and the published value on separate lines, linked to the details."""
    found = _WITH_PUBLISHED.match(cell)
    own, published = found.groups() if found else (cell, None)
    mean, sign, rest = str(own).partition(" ±") if " ±" in str(own) else str(own).partition(" [")
    text = f"<b>{html_text(mean)}</b>" + (
        f' <span class="interval">{sign.strip()}{html_text(rest)}</span>' if sign else ""
    )
    if published is not None:
        text += f' <span class="published">(<i>published </i>{html_text(published)})</span>'
    return f'<td><a href="#{behind_it}">{text}</a></td>' if behind_it and cell != "-" else f"<td>{text}</td>"


def behind(row: Row, rows: Sequence[Row], anchor: str) -> str:
    """Write the details of a row: each cell, and the longest jobs of the first."""
    cell = row.cells[0]
    blocks = [table_block(seeds_table(row, rows), f"{anchor}-seeds")]
    if cell.has("jobs"):
        blocks.append(table_block(jobs_table(cell), f"{anchor}-jobs"))
    title = f"Behind the numbers of {row.shown_name}: {counted(len(row.cells), 'cell')} and the longest jobs"
    return f'<details class="behind" id="{anchor}"><summary>{html_text(title)}</summary>\n{"".join(blocks)}</details>'


def jobs_table(cell: Cell) -> TextTable:
    """Show the longest jobs of a cell, and why they waited if that is recorded."""
    jobs, waits = cell.columns("jobs", _JOB_COLUMNS), cell.waits
    longest = np.argsort(-jobs["jct_s"], kind="stable")[:_MOST_JOBS]
    lines = tuple(
        (str(job), str(application), waits.get(str(job), ""), f"{gpus:,}", *(f"{value:,.10g}" for value in numbers))
        for job, application, gpus, *numbers in zip(
            *(jobs[name][longest].tolist() for name in _JOB_COLUMNS), strict=True
        )
    )
    units = ("GPUs", "submitted (s)", "JCT (s)", "waited (s)", "restarts")
    told = f"All {len(jobs):,} are in {cell.folder.parent.name}/{cell.folder.name}/jobs.parquet of the run."
    title = f"Jobs of seed {cell.seed} that took longest"
    return TextTable(title, ("job", "application", "waited for", *units), lines, (told,), 3)


def _figures(part: Part, anchor: str) -> str:
    pictures = [
        inline_svg(figure, f"{anchor}-{name}-") for name, (figure, _) in run_figures(part.run, part.replicate_over)
    ]
    if not pictures:
        return ""
    return "<h3>Figures</h3>\n" + "\n".join(figure_block(picture, part.run.name) for picture in pictures)


def figure_block(picture: Picture, run_name: str = "") -> str:
    """Return a figure for a page with title and caption below; a title need not repeat the run's name."""
    title = picture.title.removeprefix(f"{run_name}: ")
    title = title[:1].upper() + title[1:]
    width = picture.width_pt
    svg = picture.svg.replace(
        "<svg ", f'<svg preserveAspectRatio="xMinYMin" style="min-width: {width}px; max-width: {1.5 * width:.0f}px" ', 1
    )
    return f"""<figure>
<div class="scroll" tabindex="0" role="region" aria-label="{html_text(title)}">{svg}</div>
<figcaption><b>{html_text(title)}.</b> {html_text(picture.caption)}</figcaption>
</figure>"""


def _reproduction(recipe: Reproduction, run: Run) -> str:
    text = f"""<div class="block">
<h3>How to reproduce this</h3>
<pre><code>{html_text(recipe.command)}
simsched report {html_text(f"results/{run.folder.name}")}</code></pre>
</div>"""
    if recipe.file:
        text += f"""
<p>The first command reads the experiment from <code>{html_text(recipe.file_name)}</code>, which holds:</p>
<pre class="file"><code>{html_text(recipe.file)}</code></pre>"""
    return text


def page_of(title: str, kind: str, main: str, *, contents: str = "", script: str = "") -> str:
    """Return a page with a title, a line that describes its kind, and the HTML of its main part.

    `kind`, `main`, `contents` (after the heading) and `script` are HTML already; `title` is plain text.
    """
    style, own = (files("simsched.report.page").joinpath(name).read_text(encoding="utf-8") for name in _OWN)
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{html_text(title)}</title>
<style>
{style}</style>
</head>
<body>
<header>
<button type="button" id="theme" hidden>Dark</button>
<h1>{html_text(title)}</h1>
<p class="kind">{kind}</p>
{contents}</header>
<main>
{main}
</main>
<script>
{own}</script>
{script}
</body>
</html>
"""
