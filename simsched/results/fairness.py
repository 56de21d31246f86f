"""Finish-time fairness: how long a job took, relative to its fair share of the cluster.

The ratio rho has at least four definitions, named here. All divide a job's completion time by that of a solo run,
start-up included, and differ in that run:

* `pollux`: alone on 1/n of the GPUs, n being the mean number of jobs in the system during the job's life (Themis,
  NSDI'20, section 3; Sia, SOSP'23; assumed here for Pollux, OSDI'21, figure 7, which does not define it);
* `shockwave-static`: alone on its requested GPUs, times the jobs of the whole trace per GPU, if more than 1 (Shockwave,
NSDI'23);
* `shockwave-themis`: the same with the mean number of jobs during the job's life in place of those of the trace;
* `gavel`: the same job in a second run of all jobs under the policy `isolated`, which gives each an equal share of time
  (Gavel, OSDI'20).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np
import numpy.typing as npt

from simsched.results.metric import LOWER, NO_ROWS, Metric, Tables, integral_until, jain_index
from simsched.results.sheets import read_sheet, write_sheet

if TYPE_CHECKING:
    import pandas as pd

#: How a fractional share of the GPUs is rounded.
Rounding = Literal["floor", "ceil", "interpolate"]
#: The columns of a fairness file, one row per finished job.
COLUMNS = ("job_id", "contention", "solo_s", "rho")

Floats = npt.NDArray[np.float64]


def mean_contention(submit_s: npt.ArrayLike, end_s: npt.ArrayLike) -> Floats:
    """Average, over the life of each job, the number of jobs in the system, the job itself included.

    `submit_s` and `end_s` have one value per job, in seconds; a job counts from submission to end.
    """
    submit, end = np.asarray(submit_s, dtype=np.float64), np.asarray(end_s, dtype=np.float64)
    one, life = np.ones(submit.size), end - submit
    area = np.diff(integral_until(submit, end, one, np.stack([submit, end])), axis=0)[0]
    mean: Floats = np.divide(area, life, out=one, where=life > 0)
    return mean


def time_on_share(share: float, seconds: Callable[[int], float], rounding: Rounding = "floor") -> float:
    """Return the seconds of a job alone on `share` GPUs, given its `seconds` on whole numbers of GPUs.

    Below one GPU it is the time on one GPU divided by the share, unless the share is rounded up.
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
    """Return Shockwave's factor on the solo time: the jobs per GPU, at least 1."""
    return max(1.0, jobs / total_gpus)


def share_above(rho: npt.ArrayLike, limit: float) -> float:
    """Return the share of the ratios that are above `limit`."""
    return float(np.mean(np.asarray(rho) > limit))


def fairness_table(jobs: pd.DataFrame, contention: Floats, solo_s: npt.ArrayLike) -> pd.DataFrame:
    """Compare completion times with solo ones: `job_id, contention, solo_s, rho`, in the order of `jobs`."""
    import pandas as pd

    solo = np.asarray(solo_s, dtype=np.float64)
    values = (jobs["job_id"].to_numpy(), contention, solo, jobs["jct_s"].to_numpy() / solo)
    return pd.DataFrame(dict(zip(COLUMNS, values, strict=True)))


def write_fairness(path: Path, table: pd.DataFrame) -> None:
    """Write the ratios of a cell as CSV, whole or not at all."""
    write_sheet(path, table)


def read_fairness(path: Path) -> pd.DataFrame:
    """Read the ratios of a cell; `InputError` if the file is missing or damaged."""
    return read_sheet(path, COLUMNS)


def describe(rule: Mapping[str, str]) -> str:
    """Return a sentence that defines a run's ratios."""
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


def _rho(compute: Callable[[Sequence[float]], float]) -> Callable[[Tables], float | None]:
    return lambda tables: compute(tables.rho) if tables.rho is not None and len(tables.rho) else None


RHO_METRICS = (
    Metric("rho_median", "median rho", "", LOWER, "median of `rho`", _rho(lambda rho: float(np.median(rho)))),
    Metric("rho_p99", "99th percentile rho", "", LOWER, "99th percentile of `rho`",
           _rho(lambda rho: float(np.percentile(rho, 99)))),
    Metric("rho_max", "largest rho", "", LOWER, "largest `rho`", _rho(lambda rho: float(np.max(rho)))),
    Metric("rho_above_1", "jobs with rho > 1", "share", LOWER, "share of the jobs with `rho` > 1: treated unfairly",
           _rho(lambda rho: share_above(rho, 1)), of="all but an application"),
    Metric("rho_above_2", "jobs with rho > 2", "share", LOWER, "share of the jobs with `rho` > 2",
           _rho(lambda rho: share_above(rho, 2)), of="all but an application"),
    Metric("rho_jain", "Jain's index of rho", "", "higher",
           "Jain's index of `rho`, (sum rho)^2 / (n sum rho^2): 1 if all jobs fare alike", _rho(jain_index),
           greatest=1.0),
)  # fmt: skip


def summarise_rho(rho: Sequence[float] | pd.Series) -> dict[str, float]:
    """Compute the metrics of finish-time fairness from the ratios of a cell."""
    tables = Tables(NO_ROWS, None, None, 0, rho=np.asarray(rho, dtype=float).tolist())
    values = {metric.name: metric.compute(tables) for metric in RHO_METRICS}
    return {name: value for name, value in values.items() if value is not None}


def summarise_rho_without(rho: pd.DataFrame) -> dict[str, float]:
    """Compute, for each application, the shares of rho above 1 and 2 among the jobs of all other applications.

    `rho` has the columns `application` and `rho`, one row per job. An application limited to one GPU takes as long
    alone as under load; if it makes up much of a workload it hides the others.
    """
    found: dict[str, float] = {}
    partial = [metric.name for metric in RHO_METRICS if metric.of]
    for name in sorted(set(rho["application"])):
        rest = rho.loc[rho["application"] != name, "rho"]
        if len(rest):
            values = summarise_rho(rest)
            found |= {f"{metric}[all but {name}]": values[metric] for metric in partial}
    return found
