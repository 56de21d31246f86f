"""Reports, as text, on the cases of other schedulers' own test tables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal


@dataclass(frozen=True)
class Verdict:
    """The result of one case; `detail` is why it was skipped, or what was expected and found."""

    name: str
    result: Literal["equal", "different", "left out"]
    detail: str = ""


@dataclass(frozen=True)
class Report:
    """The cases of a file and their verdicts, in the order of the file; `remark` states what was assumed."""

    path: Path
    verdicts: tuple[Verdict, ...]
    remark: str = ""

    def count(self, result: str) -> int:
        """Count the cases of one result."""
        return sum(verdict.result == result for verdict in self.verdicts)

    @property
    def share_equal(self) -> float:
        """Return the share of the covered cases that are equal; 1 if none is covered."""
        covered = len(self.verdicts) - self.count("left out")
        return self.count("equal") / covered if covered else 1.0


def described(reports: Sequence[Report]) -> str:
    """Format reports: a line for each file and for the total, then skipped cases with reasons, then differences."""
    every = Report(Path("all"), tuple(verdict for report in reports for verdict in report.verdicts))
    width = max(len(report.path.name) for report in (*reports, every))
    lines = [f"{'file':{width}}  cases  equal  different  left out  share equal"]
    for report in (*reports, *([every] if len(reports) > 1 else [])):
        numbers = (len(report.verdicts), *map(report.count, ("equal", "different", "left out")))
        cells = "{:>5}  {:>5}  {:>9}  {:>8}".format(*numbers)
        lines.append(f"{report.path.name:{width}}  {cells}  {100 * report.share_equal:>9.1f} %")
    read = len(every.verdicts) - every.count("left out")
    lines.append(f"{read} of {len(every.verdicts)} read, of which {every.count('equal')} equal")
    lines += [f"{report.path.name}: {report.remark}" for report in reports if report.remark]
    reasons = Counter(verdict.detail for verdict in every.verdicts if verdict.result == "left out")
    lines += [f"left out, {count}: {reason}" for reason, count in sorted(reasons.items())]
    lines += [
        f"{report.path.name}: {one.name}: {one.detail}"
        for report in reports
        for one in report.verdicts
        if one.result == "different"
    ]
    return "\n".join(lines)
