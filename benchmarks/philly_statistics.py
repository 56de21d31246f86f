"""Compute `traces/philly-statistics.json` from Philly's published jobs.

    python benchmarks/philly_statistics.py PHILLY.csv [OUT.json]

PHILLY.csv is the list of the jobs that passed (`traces/README.md` gives its source). The figures are counts, shares
and quantiles over many jobs; no job can be read back. The estimates of jobs that were killed or failed come from other
publications and are copied from the shipped file.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy.optimize import least_squares
from scipy.stats import norm

from simsched.paths import data_folder
from simsched.workload import LEVELS, BatchSizes, PhillyStatistics, bucket_name, size_class_of
from simsched.workload.readers import read_trace

Floats = npt.NDArray[np.float64]

FIRST, LAST = pd.Timestamp("2017-09-24"), pd.Timestamp("2017-12-13")
HOURS = int((LAST - FIRST).total_seconds() // 3600)
GAP_S = 300
#: The sizes at which the cells of each class start; each cell has at least 13 batches.
STRATA = {"XS": (1, 2, 10), "S": (1, 2, 10, 100), "M": (1, 2, 10, 100), "L": (1, 2, 10), "XL": (1, 2), "XXL": (1,)}
#: From this size on a batch is large: it follows another process than small ones.
LARGE = 10
SIZES = (1, 2, 3, 4, 5, 7, 10, 15, 20, 30, 50, 70, 100, 150, 200, 300, 500, 700, 1000)
LAGS = (1, 2, 3, 4, 6, 8, 12, 24, 48, 72, 96, 120)
#: Fewer batches of a tenant and GPU count than this are assigned to the largest tenant of the cell.
RARE = 3
#: Fewer jobs than this have no quantiles of their own.
FEW = 60


def jobs_of(path: Path) -> pd.DataFrame:
    """Read the 80 days, with each job's second, class, and whether it is the ten-minute job."""
    trace = read_trace(path)
    origin = trace.origin or FIRST
    table = trace.table.assign(sec=trace.table["submit_time_s"] - int((FIRST - origin).total_seconds()))
    table = table[table["sec"].between(0, HOURS * 3600 - 1)].sort_values("sec", kind="stable").reset_index(drop=True)
    table["class"] = np.where(
        table["duration_s"] < 60, "XS", size_class_of((table["num_gpus"] * table["duration_s"]).to_numpy())
    )
    table["cron"] = False
    short = table[(table["tenant"] == "11cb48") & (table["num_gpus"] == 1) & table["duration_s"].between(20, 150)]
    at = short["sec"].to_numpy()
    regular = _near(at, at + 600) | _near(at, at - 600)
    table.loc[short.index[regular], "cron"] = True
    return table


def _near(times: npt.NDArray[Any], wanted: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    return np.searchsorted(times, wanted + 5, side="right") > np.searchsorted(times, wanted - 5, side="left")


def batches_of(jobs: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Number the batches: jobs of one tenant, GPU count and class, each at most 300 s after the one before."""
    key = jobs["tenant"] + " " + jobs["num_gpus"].astype(str) + " " + jobs["class"]
    ordered = jobs.assign(key=key).sort_values(["key", "sec"], kind="stable")
    new = (ordered["key"] != ordered["key"].shift()) | (ordered["sec"].diff() > GAP_S)
    ordered["batch"] = np.cumsum(new)
    columns = {"class": ("class", "first"), "gpus": ("num_gpus", "first"), "tenant": ("tenant", "first")}
    batches = ordered.groupby("batch").agg(size=("sec", "size"), sec=("sec", "min"), **columns)
    ordered["size"] = ordered.groupby("batch")["sec"].transform("size")
    ordered["large"] = ordered["size"] >= LARGE
    return ordered, batches.assign(large=batches["size"] >= LARGE, hour=batches["sec"] // 3600)


def cells_of(batches: pd.DataFrame) -> list[dict[str, Any]]:
    """Describe each class and range of sizes: frequency, hour, size, tenant and number of GPUs."""
    cells = []
    for name, bounds in STRATA.items():
        for low, high in zip(bounds, [*bounds[1:], 10**9], strict=True):
            some = batches[(batches["class"] == name) & batches["size"].between(low, high - 1)]
            sizes = _sizes(some["size"])
            per_week = some["size"].sum() / sizes.mean() / (HOURS / 168)
            cells.append(
                {
                    "class": name,
                    "large": low >= LARGE,
                    "per_week": round(float(per_week), 4),
                    "hour_share": _hours(some),
                    "size": {"size": list(sizes.size), "at_least": list(sizes.at_least)},
                    "kinds": _kinds(some),
                }
            )
    return cells


def _sizes(size: pd.Series[int]) -> BatchSizes:
    least, most = int(size.min()), int(size.max())
    # The end is rounded up to two digits, since the largest batch is a single one.
    digits = max(len(str(most)) - 2, 0)
    end = (most // 10**digits + 1) * 10**digits
    grid = sorted({least, end, *(s for s in SIZES if least < s <= most)})
    return BatchSizes(tuple(grid), tuple(round(float((size >= s).mean()), 4) for s in grid))


def _hours(batches: pd.DataFrame) -> list[float]:
    """Share the jobs among the hours of the day at which their batches begin, smoothed where batches are few."""
    jobs = np.bincount(batches["hour"] % 24, batches["size"], 24)
    if len(batches) < 400:
        jobs = 0.15 * np.roll(jobs, 1) + 0.7 * jobs + 0.15 * np.roll(jobs, -1)
    return [round(float(share), 4) for share in jobs / jobs.sum()]


def _kinds(batches: pd.DataFrame) -> list[list[Any]]:
    """Share the jobs among pairs of tenant and GPUs."""
    tenant = batches["tenant"].copy()
    pairs = batches.groupby(["tenant", "gpus"])["size"].transform("size")
    tenant[pairs < RARE] = batches.groupby("tenant").size().idxmax()
    shares = batches.groupby([tenant, "gpus"])["size"].sum() / batches["size"].sum()
    return [[owner, int(gpus), round(float(share), 4)] for (owner, gpus), share in shares.items()]


def week_of(batches: pd.DataFrame) -> dict[str, Any]:
    """Say how the days of the week differ: small batches by the hour, large ones by the day only."""
    hour_of_week = (batches["hour"] + 144) % 168
    days = np.bincount((np.arange(HOURS) + 144) % 168, minlength=168)
    small = (np.bincount(hour_of_week[~batches["large"]], minlength=168) / days).reshape(7, 24)
    large = (np.bincount(hour_of_week[batches["large"]], minlength=168) / days).reshape(7, 24).sum(axis=1)
    relative = small / small.mean(axis=0)
    return {"small": np.round(relative, 3).tolist(), "large": np.round(large / large.mean(), 3).tolist()}


def wandering_of(batches: pd.DataFrame) -> dict[str, dict[str, float]]:
    """Fit the fluctuation of the logarithms of rates: variances, and hours in which the correlation falls to 1/e.

    Large batches are weighted by their jobs, since very large ones come together. The slow component, over days, is
    common to all classes.
    """
    large = batches[batches["large"]]
    near, far = _fit(batches[~batches["large"]], None)
    found = {"small hours": near, "small days": far}
    near, found["large days"] = _fit(large, large["size"])
    for name in ("S", "M"):
        own = large[large["class"] == name]
        found[f"large {name} hours"], _ = _fit(own, own["size"], found["large days"])
    return found | {"large other hours": near}


def _fit(
    batches: pd.DataFrame, weight: pd.Series[int] | None, given: dict[str, float] | None = None
) -> tuple[dict[str, float], dict[str, float]]:
    """Fit the pair correlation of the counts in hours by two exponentials; `given` is the slower one if known."""
    count = np.bincount(batches["hour"], weight, minlength=HOURS).astype(np.float64)
    hour, day = np.arange(HOURS) % 24, np.arange(HOURS) // 24 % 7
    rate = np.full(HOURS, count.mean())
    for _ in range(20):
        rate *= (np.bincount(hour, count, 24) / np.maximum(np.bincount(hour, rate, 24), 1e-9))[hour]
        rate *= (np.bincount(day, count, 7) / np.maximum(np.bincount(day, rate, 7), 1e-9))[day]
    pairs = np.array([(rate[:-k] * rate[k:]).sum() for k in LAGS])
    ratio = np.array([(count[:-k] * count[k:]).sum() for k in LAGS]) / pairs

    def off(values: Floats) -> Floats:
        short, near, long, far = values if given is None else (*values, given["variance"], given["hours"])
        model = np.exp(short * np.exp(-np.array(LAGS) / near) + long * np.exp(-np.array(LAGS) / far))
        distance: Floats = (model - ratio) * np.sqrt(pairs / pairs.mean())
        return distance

    free = 4 if given is None else 2
    bounds = ([0, 1, 0, 12][:free], [2, 8, 1, 72][:free])
    fit = [round(float(value), 3) for value in least_squares(off, [0.3, 3.0, 0.2, 40.0][:free], bounds=bounds).x]
    slow = {"variance": fit[2], "hours": fit[3]} if given is None else given
    return {"variance": fit[0], "hours": fit[1]}, slow


def durations_of(jobs: pd.DataFrame) -> dict[str, dict[str, list[float]]]:
    """Return quantiles of GPU-seconds (of seconds in class XS) by class, size of batch and GPUs."""
    found: dict[str, dict[str, list[float]]] = {}
    measured = jobs.assign(
        value=jobs["duration_s"] * np.where(jobs["class"] == "XS", 1, jobs["num_gpus"]),
        bucket=bucket_name(jobs["num_gpus"].to_numpy()),
    )
    for name in STRATA:
        some = measured[measured["class"] == name]
        for size, part in (("any", some), ("small", some[~some["large"]]), ("large", some[some["large"]])):
            for bucket, group in (("any", part), *part.groupby("bucket", sort=True)):
                if len(group) >= FEW and (size != "large" or group["batch"].nunique() >= 5):
                    found.setdefault(f"{name} {size}", {})[str(bucket)] = _quantiles(group["value"])
    return found


def _quantiles(values: pd.Series[float]) -> list[float]:
    return [float(f"{value:.4g}") for value in np.quantile(values, LEVELS)]


def alike_of(jobs: pd.DataFrame) -> dict[str, float]:
    """Return the share of the variance (of normal scores) of durations that lies between batches."""
    found = {}
    for name in STRATA:
        for size, large in (("small", False), ("large", True)):
            some = jobs[(jobs["class"] == name) & (jobs["size"] > 1) & (jobs["large"] == large)]
            if len(some) < FEW:
                continue
            score = pd.Series(norm.ppf((some["duration_s"].rank() - 0.5) / len(some)), index=some.index)
            rest = score - score.groupby(some["batch"]).transform("mean")
            within = (rest**2).sum() / (len(some) - some["batch"].nunique())
            found[f"{name} {size}"] = round(float(np.clip(1 - within / score.var(), 0, 1)), 3)
    return found


def gaps_of(jobs: pd.DataFrame) -> dict[str, Any]:
    """Return mean and standard deviations of ln(seconds + 0.5) between jobs of a batch, between and within batches."""
    found: dict[str, Any] = {"shift": 0.5, "max": GAP_S}
    for size, large in (("small", False), ("large", True)):
        some = jobs[jobs["large"] == large]
        log = np.log(some.groupby("batch")["sec"].diff().dropna() + 0.5)
        batch = some.loc[log.index, "batch"]
        within = ((log - log.groupby(batch).transform("mean")) ** 2).sum() / max(len(log) - batch.nunique(), 1)
        between = max(log.var() - within, 0)
        values = {"mu": log.mean(), "between": between**0.5, "within": within**0.5}
        found[size] = {key: round(float(value), 3) for key, value in values.items()}
    return found


def cron_of(jobs: pd.DataFrame) -> dict[str, Any]:
    """Describe the ten-minute job: its share of all ten-minute slots that passed and its duration."""
    cron = jobs[jobs["cron"]]
    share = len(cron) / (HOURS * 6)
    return {
        "tenant": "11cb48", "every_s": 600, "share": round(share, 3), "duration_s": _quantiles(cron["duration_s"])
    }  # fmt: skip


def statistics_of(path: Path) -> dict[str, Any]:
    """Compute the whole file."""
    jobs = jobs_of(path)
    ordered, batches = batches_of(jobs[~jobs["cron"]])
    return {
        "_about": "Statistics of the Philly trace for simsched.workload.generator; traces/README.md, 'Philly"
        " statistics', says what each means. Written by benchmarks/philly_statistics.py.",
        "_source": "Jeon et al., Analysis of Large-Scale Multi-Tenant GPU Clusters for DNN Training Workloads, USENIX"
        " ATC 2019; trace CC BY 4.0 (github.com/msr-fiddle/philly-traces). Computed from the 80 days 2017-09-24 to"
        " 2017-12-12 of its passed jobs.",
        "max_duration_s": 4630000.0,
        "cells": cells_of(batches),
        "week": week_of(batches),
        "wandering": wandering_of(batches),
        "gap_s": gaps_of(ordered),
        "duration": durations_of(ordered),
        "alike": alike_of(ordered),
        "cron": cron_of(jobs),
        "other_status": PhillyStatistics.load().figures["other_status"],
    }


def text_of(figures: dict[str, Any]) -> str:
    """Write JSON with each list of plain numbers on one line."""
    text = json.dumps(figures, indent=1)
    flat = re.sub(
        r"\[[^\[\]{}]*\]", lambda found: re.sub(r"\s+", " ", found.group()).replace("[ ", "[").replace(" ]", "]"), text
    )
    return flat + "\n"


def main(arguments: Sequence[str]) -> None:
    """Compute the statistics of the trace named first and write them to the file named second (or the shipped one)."""
    target = Path(arguments[1]) if len(arguments) > 1 else data_folder("traces") / "philly-statistics.json"
    target.write_text(text_of(statistics_of(Path(arguments[0]))), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
