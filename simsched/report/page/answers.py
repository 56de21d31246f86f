"""One page of answers for operators: can it be trusted, what would a change do, how many nodes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from markupsafe import Markup

from simsched.files import write_text
from simsched.report.figures.output import inline_svg
from simsched.report.figures.style import Drawn
from simsched.report.page.template import filled, page_of
from simsched.report.table import TextTable

#: The page, and the folder of its sections, in the folder of a log's results.
PAGE, PARTS = "answers.html", "answers"
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
    """An answer: `key` is one of `ORDER`, `words` are its paragraphs, the first of which is the answer itself.

    One that is not `trusted` is framed as a warning.
    """

    key: str
    heading: str
    words: Sequence[str]
    tables: Sequence[TextTable] = ()
    drawn: Sequence[Drawn] = ()
    trusted: bool = True


def write_answer(section: Section, folder: Path, title: str) -> Path:
    """Add a section to the page of a folder, next to those of other commands; return the page.

    A section replaces an earlier one of its key. The same answers give the same bytes.
    """
    parts = folder / PARTS
    parts.mkdir(parents=True, exist_ok=True)
    pictures = [
        inline_svg(figure, f"{section.key}{number}-") for number, (figure, _) in enumerate(section.drawn, start=1)
    ]
    write_text(parts / f"{section.key}.html", filled("answers.html", section=section, pictures=pictures))
    written = [path for key in ORDER if (path := parts / f"{key}.html").is_file()]
    answers = Markup("\n".join(path.read_text(encoding="utf-8") for path in written))
    main = filled("answers.html", section=None, answers=answers, glossary=_GLOSSARY, limits=_LIMITS)
    write_text(folder / PAGE, page_of(title, "Answers from the cluster's own log, replayed by simsched", main))
    return folder / PAGE
