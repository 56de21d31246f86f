"""Output of the operators' commands: figures, and a section of one page."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from simsched.operators import ReplayPlan
    from simsched.report.page import Section


def publish(plan: ReplayPlan, section: Section) -> list[Path]:
    """Save an answer's figures and add it to the log's page; returns the files written."""
    from simsched.report.figures import save
    from simsched.report.page import write_answer

    paths: list[Path] = []
    for number, drawn in enumerate(section.drawn):
        paths += save(*drawn, plan.folder / "figures", f"{section.key}{number + 1 if number else ''}")
    return [*paths, write_answer(section, plan.folder, f"Waiting for GPUs: {plan.folder.name}")]


def say(paths: Iterable[Path]) -> None:
    """Print paths."""
    for path in paths:
        click.echo(f"{path}")
