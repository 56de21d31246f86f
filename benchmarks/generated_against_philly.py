"""Measure how far generated traces are from a given one, as the Pollux recipe sees them, and print a table.

    python benchmarks/generated_against_philly.py PHILLY.csv [--stretches 20]

Prints Markdown: each statistic of the given trace, of generated stretches of the same length (mean, and range of the
middle 80 %), the distance of the pooled stretches from the trace, that of a single stretch (median), and the distance
between the trace's first and second half. Distances are total variation (TV) for classes and Kolmogorov-Smirnov (KS)
for numbers, both between 0 and 1.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from simsched.workload import HOUR_S, MAX_GPU_TIME_S, batch_numbers, size_class_of
from simsched.workload.generator import GeneratorOptions, generate_from_seed
from simsched.workload.readers import read_trace
from simsched.workload.recipes import MIN_DURATION_S

Values = npt.NDArray[Any]

#: Philly's 80 busy days: a Sunday to a Tuesday.
FIRST, DAYS = pd.Timestamp("2017-09-24"), 80
CLASSES = ("S", "M", "L", "XL")


def table_of(jobs: pd.DataFrame, first: pd.Timestamp, days: int) -> pd.DataFrame:
    """Return jobs submitted in some days, with second, hour and day from the first midnight, class, batch, eligibility.

    `jobs` has the columns of a trace and `when`, the moment of submission.
    """
    second = ((jobs["when"] - first).dt.total_seconds()).astype("int64")
    table = jobs.assign(second=second)[second.between(0, days * 86400 - 1)].reset_index(drop=True)
    gpu_time = (table["num_gpus"] * table["duration_s"]).to_numpy("float64")
    hour = table["second"] // HOUR_S
    seen = (table["duration_s"] >= MIN_DURATION_S) & (gpu_time < MAX_GPU_TIME_S) & (hour % 24).between(2, 9)
    return table.assign(
        gpu_time=gpu_time,
        hour=hour,
        day=hour // 24,
        seen=seen,
        batch=batch_numbers(table),
        **{"class": size_class_of(gpu_time)},
    )


def total_variation(one: Values, other: Values) -> float:
    """Return half the sum of the differences of the shares of each value."""
    shares = [pd.Series(values).value_counts(normalize=True) for values in (one, other)]
    return float(shares[0].sub(shares[1], fill_value=0).abs().sum() / 2)


def kolmogorov_smirnov(one: Values, other: Values) -> float:
    """Return the largest distance between two empirical distribution functions."""
    grid = np.union1d(one, other)
    below = [np.searchsorted(np.sort(values), grid, side="right") / len(values) for values in (one, other)]
    return float(np.abs(below[0] - below[1]).max())


def _seen(table: pd.DataFrame, name: str | None = None) -> pd.DataFrame:
    return table[table["seen"] & ((table["class"] == name) if name else True)]


def _counts(table: pd.DataFrame, column: str) -> Values:
    return np.bincount(table[column], minlength=int(table[column].max()) + 1).astype(np.float64)


def _correlation(values: Values, lag: int) -> float:
    return float(np.corrcoef(values[:-lag], values[lag:])[0, 1])


def _sizes(table: pd.DataFrame) -> Values:
    """Return for each observed job the number of observed jobs of its batch."""
    return np.asarray(_seen(table).groupby("batch")["batch"].transform("size"))


def _drawn_together(table: pd.DataFrame) -> float:
    """Return the probability that two jobs drawn by the recipe belong to one batch."""
    sizes = _seen(table).groupby("batch").size().to_numpy("float64")
    return float((sizes * (sizes - 1)).sum() / (sizes.sum() * (sizes.sum() - 1)))


def _alike(table: pd.DataFrame) -> float:
    """Return the share of the variance of ln(duration) that lies between batches of two jobs and more."""
    log = np.log(_seen(table)["duration_s"])
    batch = _seen(table)["batch"]
    several = batch.groupby(batch).transform("size") > 1
    rest = log[several] - log[several].groupby(batch[several]).transform("mean")
    return float(1 - (rest**2).sum() / (several.sum() - batch[several].nunique()) / log[several].var())


Figure = Callable[[pd.DataFrame], float]
Sample = Callable[[pd.DataFrame], Values]
Distance = Callable[[Values, Values], float]


def figures() -> Mapping[str, Figure]:
    """List the scalar statistics of a trace."""
    found: dict[str, Figure] = {"jobs per day": lambda t: len(t) / (t["day"].max() + 1)}
    found["jobs per day that the recipe draws from"] = lambda t: len(_seen(t)) / (t["day"].max() + 1)
    for name in CLASSES:
        found[f"share of class {name} (%)"] = lambda t, c=name: 100 * len(_seen(t, c)) / len(_seen(t))  # type: ignore[misc]
    found["mean GPUs"] = lambda t: float(t["num_gpus"].mean())
    found["GPU-hours per day"] = lambda t: float(t["gpu_time"].sum()) / 3600 / (t["day"].max() + 1)
    found["coefficient of variation of daily counts"] = lambda t: float(
        _counts(t, "day").std() / _counts(t, "day").mean()
    )
    found["correlation of ln(daily count), next day"] = lambda t: _correlation(np.log1p(_counts(t, "day")), 1)
    found["variance over mean of hourly counts"] = lambda t: float(_counts(t, "hour").var() / _counts(t, "hour").mean())
    for lag in (1, 2, 6, 24):
        found[f"correlation of hourly counts, {lag} h"] = lambda t, k=lag: _correlation(_counts(t, "hour"), k)  # type: ignore[misc]
    found["coefficient of variation of gaps"] = lambda t: float(
        np.diff(t["second"]).std() / np.diff(t["second"]).mean()
    )
    found["gaps of at most 60 s (%)"] = lambda t: 100 * float((np.diff(t["second"]) <= 60).mean())
    found["jobs in batches of 10 to 99 (%)"] = lambda t: 100 * float(((_sizes(t) >= 10) & (_sizes(t) < 100)).mean())
    found["jobs in batches of 100 and more (%)"] = lambda t: 100 * float((_sizes(t) >= 100).mean())
    found["probability that two drawn jobs are in one batch (%)"] = lambda t: 100 * _drawn_together(t)
    found["variance of ln(duration) between batches (%)"] = lambda t: 100 * _alike(t)
    return found


def samples() -> Mapping[str, tuple[Distance, Sample]]:
    """List the samples of a trace that are compared by a distance, with the distance."""
    found: dict[str, tuple[Distance, Sample]] = {
        "class (TV)": (total_variation, lambda t: _seen(t)["class"].to_numpy()),
        "hour of the window (TV)": (total_variation, lambda t: (_seen(t)["hour"] % 24).to_numpy()),
    }
    for name in CLASSES:
        found[f"hour of class {name} (TV)"] = (total_variation, lambda t, c=name: (_seen(t, c)["hour"] % 24).to_numpy())  # type: ignore[misc]
    for name in CLASSES:
        found[f"GPUs of class {name} (TV)"] = (total_variation, lambda t, c=name: _seen(t, c)["num_gpus"].to_numpy())  # type: ignore[misc]
    for name in CLASSES:
        found[f"duration in class {name} (KS)"] = (
            kolmogorov_smirnov,
            lambda t, c=name: _seen(t, c)["duration_s"].to_numpy(),
        )  # type: ignore[misc]
    found["duration, all (KS)"] = (kolmogorov_smirnov, lambda t: _seen(t)["duration_s"].to_numpy())
    found["daily counts (KS)"] = (kolmogorov_smirnov, lambda t: _counts(t, "day"))
    found["hourly counts (KS)"] = (kolmogorov_smirnov, lambda t: _counts(t, "hour"))
    found["gaps (KS)"] = (kolmogorov_smirnov, lambda t: np.diff(t["second"]))
    found["batch of a job, its size (KS)"] = (kolmogorov_smirnov, _sizes)
    return found


def generated(stretches: int) -> list[pd.DataFrame]:
    """Generate stretches of the trace endlessly, each of 80 days starting on a Sunday."""
    made = []
    for index in range(stretches):
        trace = generate_from_seed(GeneratorOptions(days=DAYS, weekday="Sun", first_week=13 * index), 0)
        when = pd.to_timedelta(trace.table["submit_time_s"], unit="s") + trace.origin
        made.append(table_of(trace.table.assign(when=when), trace.origin, DAYS))  # type: ignore[arg-type]
    return made


def report(given: pd.DataFrame, made: Sequence[pd.DataFrame]) -> str:
    """Return the two tables as Markdown."""
    lines = ["| statistic | Philly | generated: mean (middle 80 %) |", "|---|---:|---:|"]
    for name, figure in figures().items():
        values = [figure(table) for table in made]
        low, high = np.quantile(values, [0.1, 0.9])
        shown = f"{_short(float(np.mean(values)))} ({_short(low)} to {_short(high)})"
        lines.append(f"| {name} | {_short(figure(given))} | {shown} |")
    half = DAYS // 2
    first, second = given[given["day"] < half], given[given["day"] >= half]
    second = second.assign(day=second["day"] - half, hour=second["hour"] - 24 * half)
    lines += [
        "",
        "| distance from Philly | all stretches | one stretch (median) | Philly's halves |",
        "|---|---:|---:|---:|",
    ]
    for name, (distance, sample) in samples().items():
        taken = [sample(table) for table in made]
        own = sample(given)
        pooled, single = distance(np.concatenate(taken), own), np.median([distance(values, own) for values in taken])
        lines.append(f"| {name} | {pooled:.3f} | {single:.3f} | {distance(sample(first), sample(second)):.3f} |")
    return "\n".join(lines)


def _short(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def main() -> None:
    """Compare the trace that the command line names."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("trace", type=Path)
    parser.add_argument("--stretches", type=int, default=20)
    chosen = parser.parse_args()
    trace = read_trace(chosen.trace)
    when = pd.to_timedelta(trace.table["submit_time_s"], unit="s") + (trace.origin or FIRST)
    print(report(table_of(trace.table.assign(when=when), FIRST, DAYS), generated(chosen.stretches)))


if __name__ == "__main__":
    main()
