"""A job of Gavel's workloads, and the job types to draw from."""

from __future__ import annotations

import re
from dataclasses import dataclass

_BATCH_SIZES = {
    "ResNet-18": (16, 32, 64, 128, 256),
    "ResNet-50": (16, 32, 64, 128),
    "Transformer": (16, 32, 64, 128, 256),
    "LM": (5, 10, 20, 40, 80),
    "Recommendation": (512, 1024, 2048, 4096, 8192),
}

#: The 26 job types in the order of Gavel's job table; the generator's draws depend on this order.
TEMPLATES = (
    *(f"{model} (batch size {size})" for model, sizes in _BATCH_SIZES.items() for size in sizes),
    "A3C",
    "CycleGAN",
)

#: The 19 job types that may use several GPUs.
DISTRIBUTED = frozenset(
    name for name in TEMPLATES if name.split(" ")[0] in ("ResNet-18", "ResNet-50", "Transformer", "LM")
)

#: A job type and its number of GPUs.
Kind = tuple[str, int]
_TEMPLATE = re.compile(r"(?P<model>\S+?)(?: \(batch size (?P<batch>\d+)\))?")


def split_template(template: str) -> tuple[str, int]:
    """Return model and batch size of a job type such as `LM (batch size 10)`; batch size 0 if it names none.

    Raises `ValueError` if the text is not a job type.
    """
    match = _TEMPLATE.fullmatch(template)
    if match is None:
        raise ValueError(f"'{template}' is not a job type such as 'LM (batch size 10)'")
    return match["model"], int(match["batch"] or 0)


@dataclass(frozen=True)
class GavelJob:
    """One job: `total_steps` mini-batches of the job type `template` on `num_gpus` GPUs.

    `duration_s` is the nominal running time that the steps were computed from.
    `slo` is the deadline as a multiple of `duration_s`, or None.
    """

    id: int
    template: str
    num_gpus: int
    total_steps: float
    arrival_s: float = 0.0
    duration_s: float = 0.0
    weight: float = 1.0
    slo: float | None = None
