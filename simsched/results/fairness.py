"""Finish-time fairness: how long a job took, relative to its fair share of the cluster.

The ratio rho has been defined in at least four ways, here by name. All divide a job's completion time by that of a solo
run of it, start-up included, and differ in what that run is:

* `pollux`: alone on 1/n of the GPUs, n being the mean number of jobs in the system during the job's life (Themis,
  NSDI'20, section 3; Sia, SOSP'23; taken here for Pollux, OSDI'21, figure 7, where it is not spelt out);
* `shockwave-static`: alone on the GPUs that it asked for, times the jobs of the whole trace per GPU, if more than 1
  (Shockwave, NSDI'23);
* `shockwave-themis`: the same with the mean number of jobs during the job's life in place of those of the trace;
* `gavel`: the same job in a second run of all jobs under the policy `isolated`, which gives each an equal share of time
  (Gavel, OSDI'20).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np
import numpy.typing as npt

from simsched.results.integrals import integral_until
from simsched.results.sheets import read_sheet, write_sheet

if TYPE_CHECKING:
    import pandas as pd

#: How a share of the GPUs that is not whole is made one.
Rounding = Literal["floor", "ceil", "interpolate"]
#: The columns of a file of fairness, one row a finished job.
COLUMNS = ("job_id", "contention", "solo_s", "rho")

Floats = npt.NDArray[np.float64]


def mean_contention(submit_s: npt.ArrayLike, end_s: npt.ArrayLike) -> Floats:
    """Average, over the life of each job, how many jobs are in the system, the job itself included.

    `submit_s` and `end_s` have one value a job, in seconds; a job counts from submission to end.
    """
    submit, end = np.asarray(submit_s, dtype=np.float64), np.asarray(end_s, dtype=np.float64)
    one, life = np.ones(submit.size), end - submit
    area = np.diff(integral_until(submit, end, one, np.stack([submit, end])), axis=0)[0]
    mean: Floats = np.divide(area, life, out=one, where=life > 0)
    return mean


def time_on_share(share: float, seconds: Callable[[int], float], rounding: Rounding = "floor") -> float:
    """Return the seconds of a job alone on `share` GPUs, given its `seconds` on whole numbers of GPUs.

    Below one GPU it is the time on one divided by the share, unless the share is rounded up.
    """
    low, high = math.floor(share), math.ceil(share)
    if rounding == "ceil" or low == high:
        return seconds(high)
    if low < 1:
        return seconds(1) / share
    if rounding == "floor":
        return seconds(low)
    return seconds(low) + (share - low) * (seconds(high) - seconds(low))


def exclusive_slowdown(jobs: float, total_gpus: int) -> float:
    """Return Shockwave's factor on the time alone: the jobs per GPU, at least 1."""
    return max(1.0, jobs / total_gpus)


def share_above(rho: npt.ArrayLike, limit: float) -> float:
    """Return the share of the ratios that are above `limit`."""
    return float(np.mean(np.asarray(rho) > limit))


def fairness_table(jobs: pd.DataFrame, contention: Floats, solo_s: npt.ArrayLike) -> pd.DataFrame:
    """Set completion times against solo ones: `job_id, contention, solo_s, rho`, in the order of `jobs`."""
    import pandas as pd

    solo = np.asarray(solo_s, dtype=np.float64)
    values = (jobs["job_id"].to_numpy(), contention, solo, jobs["jct_s"].to_numpy() / solo)
    return pd.DataFrame(dict(zip(COLUMNS, values, strict=True)))


def write_fairness(path: Path, table: pd.DataFrame) -> None:
    """Write the ratios of a cell as CSV, whole or not at all."""
    write_sheet(path, table)


def read_fairness(path: Path) -> pd.DataFrame:
    """Read the ratios of a cell; `InputError` where the file is missing or damaged."""
    return read_sheet(path, COLUMNS)


def describe(rule: Mapping[str, str]) -> str:
    """Return a sentence that says what a run's ratios compare with."""
    batch = {
        "best": "its best batch size",
        "submitted": "the batch size that its policy uses",
        "profile": "the batch sizes of its profile",
    }[rule["batch"]]
    alone = {
        "pollux": f"alone on an equal share of the GPUs (those of the cluster / mean number of jobs in its life, "
        f"{rule['rounding']}) at {batch}",
        "shockwave-static": f"alone on the GPUs it asked for at {batch}, times jobs of the workload per GPU",
        "shockwave-themis": f"alone on the GPUs it asked for at {batch}, times mean jobs in its life per GPU",
        "gavel": "in a second run of all jobs under the policy 'isolated'",
    }
    return f"rho ({rule['definition']}): completion time / that of the same job {alone[rule['definition']]}."
