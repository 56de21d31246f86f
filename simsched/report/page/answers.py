"""One page of answers for operators: can it be trusted, what would a change do, how many nodes."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from markupsafe import Markup

from simsched.files import write_text
from simsched.outlets import json_text
from simsched.report.figures.output import inline_svg
from simsched.report.figures.style import Drawn
from simsched.report.page.template import filled, page_of
from simsched.report.table import TextTable

#: The page, and the folder of its sections, in the folder of a log's results.
PAGE, PARTS, _INDEX = "answers.html", "answers", "answers.json"
#: The sections in the order of the page.
ORDER = ("calibrate", "what-if", "capacity", "forecast")
#: The meanings of the words in the tables.
_GLOSSARY = (
    ("Wait", "the time from when a job could have started until it did, and while it was stopped for others."),
    ("Mean, median, p90", "the average; half of the jobs wait at most the median, nine of ten at most the p90."),
    ("Slow-down", "how many times longer a job took, waiting and running, than it ran: 1 is no wait at all."),
    ("Gains, loses", "the mean wait falls or rises by more than a minute and by more than a twentieth."),
    ("Replay", "the log's own jobs, submitted as they were, under a simulated scheduler."),
    ("Skill", "how much of a guess's error the replay takes away: 0 is no better than guessing, 1 is right."),
    ("Forecast", "the recorded wait, changed as the replay changes; its interval includes how far the replay was off."),
    ("Lost", "GPU hours of jobs that were killed at a limit or cancelled, or that failures undid."),
)
_LIMITS = (
    "The same jobs come at the same times whatever they have to wait. What the log and the configuration do not say, "
    "the replay does not know."
)


@dataclass(frozen=True)
class Section:
    """An answer: `key` is one of `ORDER`, `words` are its paragraphs, and `sentence` is the answer in one.

    The page keeps one section for each `question` of a key, and puts the `compared` values of those that have some, by
    header, into one table. A section that is not `trusted` is framed as a warning.
    """

    key: str
    heading: str
    words: Sequence[str]
    tables: Sequence[TextTable] = ()
    drawn: Sequence[Drawn] = ()
    trusted: bool = True
    question: str = ""
    sentence: str = ""
    compared: Mapping[str, str] = field(default_factory=dict)


def write_answer(section: Section, folder: Path, title: str) -> Path:
    """Add a section with its figures to the page of a folder, next to other answers; return the page.

    A section replaces an earlier one of its question. The same answers in the same order give the same bytes.
    """
    parts = folder / PARTS
    parts.mkdir(parents=True, exist_ok=True)
    index = _index(folder)
    name = answer_name(section, folder)
    index[name] = {one: getattr(section, one) for one in ("key", "question", "sentence", "compared")}
    pictures = [inline_svg(figure, f"{name}-{number}-") for number, (figure, _) in enumerate(section.drawn, start=1)]
    write_text(parts / f"{name}.html", filled("answers.html", section=section, name=name, pictures=pictures))
    write_text(parts / _INDEX, json_text(index))
    names = sorted((one for one in index if (parts / f"{one}.html").is_file()), key=lambda one: _place(index[one], one))
    answers = Markup("\n".join((parts / f"{one}.html").read_text(encoding="utf-8") for one in names))
    said = [(one, index[one]["sentence"] or index[one]["question"] or one) for one in names]
    compared = _comparison([index[one]["compared"] for one in names])
    main = filled(
        "answers.html", section=None, answers=answers, said=said, compared=compared, glossary=_GLOSSARY, limits=_LIMITS
    )
    write_text(folder / PAGE, page_of(title, "Answers from the cluster's own log, replayed by simsched", main))
    return folder / PAGE


def answer_name(section: Section, folder: Path) -> str:
    """Return the name of a section's files: its key, numbered if other questions of it were asked before."""
    mine = [name for name, one in _index(folder).items() if one["key"] == section.key]
    asked = [name for name in mine if _index(folder)[name]["question"] == section.question]
    return asked[0] if asked else section.key if not mine else f"{section.key}-{len(mine) + 1}"


def _index(folder: Path) -> dict[str, Any]:
    """Return what is known of the sections of a page, by name."""
    file = folder / PARTS / _INDEX
    found: dict[str, Any] = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
    return found


def _place(one: Mapping[str, Any], name: str) -> tuple[int, int]:
    return ORDER.index(one["key"]), int(name.removeprefix(one["key"]).removeprefix("-") or 1)


def _comparison(rows: Sequence[Mapping[str, str]]) -> TextTable | None:
    """Compare the answers that have values; None unless there are several."""
    kept = [row for row in rows if row]
    if len(kept) < 2:
        return None
    headers = tuple(dict.fromkeys(header for row in kept for header in row))
    return TextTable("All changes", headers, tuple(tuple(row.get(one, "-") for one in headers) for row in kept), (), 1)
