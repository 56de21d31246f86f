"""The section `engine.sharing`."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from simsched.documents import Section
from simsched.keys import INPUT_FILE


class SharingSpec(Section):
    """Sharing of a GPU between several jobs, and their speed."""

    max_jobs: int = Field(default=1, ge=1, le=16, description="most jobs on one GPU")
    model: Literal["constant", "time-slicing", "stages", "gaps", "pairs", "shares"] = Field(
        default="constant",
        description="speed of jobs that share a GPU; 'shares': as if alone, since their requested parts "
        "add up to at most one GPU",
    )
    factor: float | None = Field(
        default=None, gt=0, le=1, description="model 'constant': speed relative to a job alone; 1/k by default"
    )
    quantum_s: float = Field(default=60.0, gt=0, description="model 'time-slicing': seconds per time slice")
    switch_s: float = Field(default=0.0, ge=0, description="model 'time-slicing': seconds lost per time slice")
    pairs_path: Annotated[str | None, INPUT_FILE] = Field(
        default=None, min_length=1, description="model 'pairs': CSV of measured pairs"
    )
    default_speed: float | None = Field(
        default=None, gt=0, le=1.5, description="model 'pairs': speed of pairs that are not in the table"
    )
