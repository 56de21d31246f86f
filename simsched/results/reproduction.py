"""How a run can be made anew."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Reproduction:
    """What makes a run anew: a command, and the text of the experiment file that it reads unless that is shipped."""

    command: str
    file_name: str = ""
    file: str = ""
