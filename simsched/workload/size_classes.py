"""The classes of jobs by GPU-time in the Pollux evaluation, and the applications that stand for each."""

from __future__ import annotations

from typing import Any

import numpy as np

HOUR_S = 3600
#: Jobs of at least this GPU-time belong to no class.
MAX_GPU_TIME_S = 1000 * HOUR_S

#: Classes by GPU-time: name, upper bound in GPU-seconds, and the applications that stand for it.
SIZE_CLASSES: tuple[tuple[str, int, tuple[str, ...]], ...] = (
    ("S", 1 * HOUR_S, ("cifar10", "ncf")),
    ("M", 10 * HOUR_S, ("deepspeech2", "bert")),
    ("L", 100 * HOUR_S, ("yolov3",)),
    ("XL", MAX_GPU_TIME_S, ("imagenet",)),
)


def size_class_of(gpu_time_s: Any) -> Any:
    """Return the name of the size class (S, M, L, XL or XXL) of each GPU-time in seconds."""
    bounds = [bound for _, bound, _ in SIZE_CLASSES]
    names = np.array([*(name for name, _, _ in SIZE_CLASSES), "XXL"])
    return names[np.searchsorted(bounds, gpu_time_s, side="right")]
