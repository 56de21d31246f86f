"""Runs cases of other schedulers' tests and prints which come out equal, which differ and which are left out."""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from simsched.errors import InputError


@dataclass(frozen=True)
class Verdict:
    """The result of one case; `detail` is why it was left out, or what was expected and what came out."""

    name: str
    result: Literal["equal", "different", "left out"]
    detail: str = ""


@dataclass(frozen=True)
class Report:
    """The cases of a file and their verdicts, in the order of the file."""

    path: Path
    verdicts: tuple[Verdict, ...]

    def count(self, result: str) -> int:
        """Count the cases of one result."""
        return sum(verdict.result == result for verdict in self.verdicts)

    @property
    def counts(self) -> tuple[int, int, int]:
        """How many cases are equal, different, left out."""
        return self.count("equal"), self.count("different"), self.count("left out")


def described(reports: Sequence[Report]) -> str:
    """Format reports: a line for each file, the sum, then the cases left out by reason, then the differences."""
    lines = []
    every = Report(Path("all"), tuple(verdict for report in reports for verdict in report.verdicts))
    for report in (*reports, *([every] if len(reports) > 1 else [])):
        equal, different, left_out = report.counts
        read = f"{equal + different} of {len(report.verdicts)} read"
        lines.append(f"{report.path.name}: {read}, {equal} equal, {different} different, {left_out} left out")
    reasons = Counter(verdict.detail for verdict in every.verdicts if verdict.result == "left out")
    lines += [f"left out, {count}: {reason}" for reason, count in sorted(reasons.items())]
    lines += [
        f"{report.path.name}: {verdict.name}: {verdict.detail}"
        for report in reports
        for verdict in report.verdicts
        if verdict.result == "different"
    ]
    return "\n".join(lines)


def files_in(places: Iterable[Path]) -> list[Path]:
    """Return the given files, and the JSON files in the given folders, sorted."""
    return [file for place in places for file in (sorted(place.glob("*.json")) if place.is_dir() else [place])]


def run(program: str, check_file: Callable[[Path], Report], arguments: Sequence[str] | None = None) -> int:
    """Check files and print the reports; return 1 if a case differs or none was read, 2 for files of another format."""
    parser = argparse.ArgumentParser(prog=f"python -m {program}", description="Runs cases of a scheduler's tests.")
    parser.add_argument("places", nargs="+", type=Path, metavar="FILE_OR_FOLDER")
    try:
        reports = [check_file(path) for path in files_in(parser.parse_args(arguments).places)]
    except InputError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    sys.stdout.write(f"{described(reports)}\n")
    nothing_equal = not any(report.count("equal") for report in reports)
    return int(nothing_equal or any(report.count("different") for report in reports))
