"""The value of knowledge about earlier jobs: completion times with a prior, relative to those without.

For runs whose policies have a parameter `prior`; the one with the value `none` is the reference of the others, by job,
under the same seed and at the same point of the sweep.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from simsched.report.figures.style import Drawn, Look, Plan, legend_above, looks, new_figure, ramp_looks, styled
from simsched.report.units import DAY_S
from simsched.results import Cell, Estimate, Run, estimate
from simsched.results.compare import short_keys
from simsched.results.sheets import CurvePoint

#: Names of the point of a sweep at which published changes hold.
_PUBLISHED_AT = ("", "load 1", "load 1.0")

ALL = "all jobs"
_JOBS = ["job_id", "application", "submit_time_s", "end_time_s", "jct_s"]
_GAIN = ["policy", "point", "group", "mean", "low", "high", "seeds", "jobs"]
#: Upper bounds of the classes by number of jobs in the pool: 0, 1, 2 to 3, 4 to 7, ...
_BOUNDS = (0, 1, 3, 7, 15, 31)
#: Applications with fewer jobs in all seeds and classes together are too few to draw.
_FEWEST = 60
_MOST_PANELS = 3
_SPREAD = 0.62
_WIDEST = 0.6


def history_figures(run: Run, replicate_over: Collection[str] = ()) -> Iterator[tuple[str, Plan]]:
    """Plan figures of the effect of priors; nothing if the run does not compare any.

    Swept keys in `replicate_over` count as replications, like seeds.
    """
    priors = {cell.shown_policy: _prior_of(cell) for cell in run.cells}
    reference = next((label for label, prior in priors.items() if prior == "none"), None)
    if reference is None or set(priors.values()) <= {"none", None}:
        return
    jobs = paired_jobs(run, reference, replicate_over)
    if jobs.empty:
        return
    title = f"{run.name}: completion times with a prior"
    styles = looks(run.shown_policies)
    gains = gain_data(jobs)
    yield "history-gain", partial(gain_figure, gains, styles, title=title, curves=run.published_curves)
    learning = [label for label, prior in priors.items() if prior == "pool"]
    filling = fill_data(jobs[jobs["policy"].isin(learning[:1])])
    if not filling.empty:
        points = list(dict.fromkeys(filling["point"]))
        of_points = {points[0]: styles[learning[0]]} if len(points) == 1 else ramp_looks(points)
        yield "history-fill", partial(fill_figure, filling, of_points, title=f"{run.name}: as the pool fills")
    if jobs["day"].max() > 0:
        yield "history-days", partial(days_figure, days_data(jobs), styles, title=f"{run.name}: day by day")


def _prior_of(cell: Cell) -> Any:
    policy = cell.manifest.get("policy")
    params = policy.get("params", {}) if isinstance(policy, Mapping) else {}
    return params.get("prior")


def paired_jobs(run: Run, reference: str, replicate_over: Collection[str] = ()) -> pd.DataFrame:
    """Pair every job with itself under the reference policy.

    Columns: `policy, point, seed` (and other replication keys), `job_id, application, submit_time_s,
    end_time_s, jct_s, reference_s, day` (0-based, of the submission), and `known`: the number of jobs of its
    application that had finished in the same run at its submission.
    """
    references = {_place(cell): cell for cell in run.cells if cell.shown_policy == reference}
    frames = []
    for cell in run.cells:
        other = references.get(_place(cell))
        if other is None or cell.shown_policy == reference:
            continue
        replica = ", ".join([str(cell.seed), *(str(cell.point[key]) for key in replicate_over if key in cell.point)])
        point = {key: value for key, value in cell.point.items() if key not in replicate_over}
        frame = cell.table("jobs", _JOBS).assign(policy=cell.shown_policy, point=_point_name(point), seed=replica)
        alone = other.table("jobs", ["job_id", "jct_s"]).rename(columns={"jct_s": "reference_s"})
        frames.append(_with_known(frame).merge(alone, on="job_id", validate="one_to_one"))
    if not frames:
        return pd.DataFrame(columns=["policy", "point", "seed", *_JOBS, "known", "reference_s", "day"])
    jobs = pd.concat(frames, ignore_index=True)
    return jobs.assign(day=jobs["submit_time_s"] // DAY_S)


def _place(cell: Cell) -> tuple[Hashable, ...]:
    return (cell.seed, *(f"{key}={value}" for key, value in sorted(cell.point.items())))


def _point_name(point: Mapping[str, Any]) -> str:
    short = short_keys(list(point))
    return ", ".join(f"{short[key]} {value}" for key, value in point.items())


def _with_known(jobs: pd.DataFrame) -> pd.DataFrame:
    known = pd.Series(0, index=jobs.index)
    for _, part in jobs.groupby("application", sort=True):
        ends = np.sort(part["end_time_s"].to_numpy())
        known.loc[part.index] = np.searchsorted(ends, part["submit_time_s"].to_numpy(), side="right")
    return jobs.assign(known=known)


def _change_of_means(jobs: pd.DataFrame) -> Estimate:
    """Estimate the relative change of the mean JCT, seed by seed."""
    means = jobs.groupby("seed", sort=True)[["jct_s", "reference_s"]].mean()
    return estimate(means["jct_s"] / means["reference_s"] - 1)


def _change_of_jobs(jobs: pd.DataFrame) -> Estimate:
    """Estimate the relative change of a job's JCT: geometric mean of the ratios, seed by seed."""
    logs = (jobs["jct_s"] / jobs["reference_s"]).map(np.log)
    return estimate(np.exp(logs.groupby(jobs["seed"], sort=True).mean()) - 1)


def _line(*key: Any, found: Estimate, jobs: int) -> tuple[Any, ...]:
    return (*key, found.mean, found.low, found.high, found.n, jobs)


def _frame(lines: Sequence[tuple[Any, ...]], columns: Sequence[str]) -> pd.DataFrame:
    data = pd.DataFrame(lines, columns=list(columns))
    return data.astype(dict.fromkeys(("mean", "low", "high"), float))


def gain_data(jobs: pd.DataFrame) -> pd.DataFrame:
    """Compute the relative change of mean JCT by application, shortest first, and over all jobs.

    Columns: `policy, point, group, mean, low, high` (1 = 100 %), `seeds, jobs`.
    """
    order = jobs.groupby("application")["reference_s"].mean().sort_values().index
    lines = []
    for (policy, point), part in jobs.groupby(["policy", "point"], sort=False):
        for group in (*order, ALL):
            own = part if group == ALL else part[part["application"] == group]
            if len(own):
                lines.append(_line(policy, point, group, found=_change_of_means(own), jobs=len(own)))
    return _frame(lines, _GAIN)


@styled()
def gain_figure(
    data: pd.DataFrame, looked: Mapping[str, Look], *, title: str, curves: Sequence[CurvePoint] = ()
) -> Drawn:
    """Draw one panel per point of the sweep, one row per application, one mark per policy, as each is `looked`.

    Published `curves` of the figure `history-gain` give an application (their panel) a grey band at load 1.
    """
    published = _published_bands(curves)
    points, groups = list(dict.fromkeys(data["point"])), list(dict.fromkeys(data["group"]))
    styles = {name: looked[name] for name in dict.fromkeys(data["policy"])}
    caption = f"Change of mean JCT against agents that start from nothing (left is better); {_seeds_caption(data)}"
    if any(group in published for group in groups) and any(point in _PUBLISHED_AT for point in points):
        caption += " Grey: published for models seeded offline, at load 1."
    width = 1.6 + 2.6 * max(len(points), 1.6)
    figure = new_figure(width, 0.8 + 0.14 * len(groups) * (1 + len(styles)), title, caption)
    panels = figure.subplots(1, len(points), sharey=True, sharex=True, squeeze=False)[0]
    for axes, point in zip(panels, points, strict=True):
        _gain_panel(axes, data[data["point"] == point], groups, styles)
        for group in (group for group in groups if group in published and point in _PUBLISHED_AT):
            low, high = published[group]
            place = groups.index(group)
            axes.fill_between([100 * low, 100 * high], place - 0.45, place + 0.45, color="#BBBBBB", linewidth=0)
        axes.set(title=point, xlabel="change of mean JCT (%)")
    panels[0].set_yticks(range(len(groups)), groups)
    panels[0].set_ylim(len(groups) - 0.4, -0.6)
    _clip(panels[0], data, horizontal=True)
    legend_above(figure, panels[0])
    return figure, data


def _published_bands(curves: Sequence[CurvePoint]) -> dict[str, tuple[float, float]]:
    """Return the lowest and highest published change of mean JCT by application."""
    found: dict[str, list[float]] = {}
    for point in curves:
        if point.figure == "history-gain":
            found.setdefault(point.panel, []).append(point.y)
    return {application: (min(values), max(values)) for application, values in found.items()}


def _gain_panel(axes: Axes, part: pd.DataFrame, groups: Sequence[str], styles: Mapping[str, Look]) -> None:
    axes.axvline(0, color="#222222", linewidth=0.9)
    for index, (name, look) in enumerate(styles.items()):
        own = part[part["policy"] == name]
        places = own["group"].map(groups.index) + _SPREAD * ((index + 0.5) / len(styles) - 0.5)
        errors = _errors(own)
        axes.errorbar(
            100 * own["mean"], places, xerr=errors, fmt=look.marker, color=look.colour, markersize=4.5, capsize=2,
            linewidth=1.1, label=name,
        )  # fmt: skip
    axes.grid(visible=False, axis="y")
    axes.tick_params(axis="y", length=0)


def _errors(part: pd.DataFrame) -> Any:
    both = np.array([part["mean"] - part["low"], part["high"] - part["mean"]])
    return 100 * np.nan_to_num(both)


def _clip(axes: Axes, data: pd.DataFrame, *, horizontal: bool) -> None:
    """Clip wide intervals of few seeds so that they do not flatten the lines."""
    low, high = data["mean"].min(), data["mean"].max()
    reach_low = max(data["low"].fillna(low).min(), low - 0.15, -_WIDEST)
    reach_high = min(data["high"].fillna(high).max(), high + 0.15, _WIDEST)
    limits = 100 * min(reach_low, -0.02) - 1, 100 * max(reach_high, 0.02) + 1
    (axes.set_xlim if horizontal else axes.set_ylim)(*limits)


def _seeds_caption(data: pd.DataFrame) -> str:
    seeds = int(data["seeds"].max()) if len(data) else 0
    if seeds < 2:
        return "one seed, hence no interval."
    few = " Whiskers may leave the panel; a mark without them is of one seed." if data["low"].isna().any() else ""
    return f"mean over {seeds} seeds (fewer where a seed has no such job); whiskers: 95 % interval (Student's t).{few}"


def fill_data(jobs: pd.DataFrame) -> pd.DataFrame:
    """Compute the change of a job's JCT by the number of jobs of its application in the pool.

    Applications with few jobs, or whose jobs the prior cannot change, are left out. Columns: `policy, point, group`
    (the application), `known` (the class), `mean, low, high, seeds, jobs`.
    """
    lines = []
    for application in _frequent(jobs):
        own = jobs[jobs["application"] == application]
        classes = np.searchsorted(_BOUNDS, own["known"].to_numpy(), side="left")
        for index in range(len(_BOUNDS) + 1):
            for (policy, point), part in own[classes == index].groupby(["policy", "point"], sort=False):
                found = _change_of_jobs(part)
                lines.append(_line(policy, point, application, _class_name(index), found=found, jobs=len(part)))
    return _frame(lines, ["policy", "point", "group", "known", *_GAIN[3:]])


def _frequent(jobs: pd.DataFrame) -> list[str]:
    """List the applications with many jobs that priors change, shortest first."""
    groups = jobs.groupby("application")
    order = groups["reference_s"].mean().sort_values().index
    changed = {str(name): bool((part["jct_s"] != part["reference_s"]).mean() > 0.5) for name, part in groups}
    return [str(name) for name in order if changed[str(name)] and groups.size()[name] >= _FEWEST][:_MOST_PANELS]


def _class_name(index: int) -> str:
    if index == len(_BOUNDS):
        return f"{_BOUNDS[-1] + 1}+"
    low, high = (_BOUNDS[index - 1] + 1 if index else 0), _BOUNDS[index]
    return str(low) if low == high else f"{low}-{high}"


def fill_figure(data: pd.DataFrame, looked: Mapping[str, Look], *, title: str) -> Drawn:
    """Draw one panel per application: the change against the number of jobs known, one line per point of the sweep."""
    classes = [name for name in map(_class_name, range(len(_BOUNDS) + 1)) if name in set(data["known"])]
    caption = (
        "Geometric mean of each job's JCT with the pool over its JCT from nothing, by how many jobs of the same "
        f"application had finished when it was submitted; {_seeds_caption(data)}"
    )
    return _panels(data, "known", classes, "jobs of the application in the pool", "point", title, caption, looked)


def days_data(jobs: pd.DataFrame) -> pd.DataFrame:
    """Compute the change of mean JCT by day of submission, for the frequent applications and all jobs.

    Columns: `policy, point, group, day` (from 1), `mean, low, high, seeds, jobs`.
    """
    lines = []
    for group in (*_frequent(jobs)[: _MOST_PANELS - 1], ALL):
        own = jobs if group == ALL else jobs[jobs["application"] == group]
        for day in range(int(jobs["day"].max()) + 1):
            for (policy, point), part in own[own["day"] == day].groupby(["policy", "point"], sort=False):
                lines.append(_line(policy, point, group, str(day + 1), found=_change_of_means(part), jobs=len(part)))
    return _frame(lines, ["policy", "point", "group", "day", *_GAIN[3:]])


def days_figure(data: pd.DataFrame, looked: Mapping[str, Look], *, title: str) -> Drawn:
    """Draw one panel per group of jobs: the change on each day, one line per policy."""
    days = sorted(set(data["day"]), key=int)
    caption = (
        f"Change of mean JCT of the jobs of each day against agents that start from nothing; {_seeds_caption(data)}"
    )
    return _panels(data, "day", days, "day", "policy", title, caption, looked)


@styled()
def _panels(
    data: pd.DataFrame,
    column: str,
    values: Sequence[str],
    axis: str,
    line: str,
    title: str,
    caption: str,
    looked: Mapping[str, Look],
) -> Drawn:
    groups, styles = list(dict.fromkeys(data["group"])), {name: looked[name] for name in dict.fromkeys(data[line])}
    figure = new_figure(1.6 + 2.6 * max(len(groups), 1.6), 2.7, title, caption)
    panels = figure.subplots(1, len(groups), sharey=True, squeeze=False)[0]
    for axes, group in zip(panels, groups, strict=True):
        axes.axhline(0, color="#222222", linewidth=0.9)
        for index, (name, look) in enumerate(styles.items()):
            part = data[(data["group"] == group) & (data[line] == name)]
            places = part[column].map(values.index) + 0.12 * (index - (len(styles) - 1) / 2)  # whiskers apart
            axes.errorbar(
                places, 100 * part["mean"], yerr=_errors(part), color=look.colour, linestyle=look.dash,
                marker=look.marker, markersize=4.5, capsize=2, linewidth=1.2, label=name or None,
            )  # fmt: skip
        axes.set(title=group, xlabel=axis)
        axes.set_xticks(range(len(values)), values)
        axes.set_xlim(-0.5, len(values) - 0.5)
        axes.grid(visible=False, axis="x")
    panels[0].set_ylabel("change of JCT (%)")
    _clip(panels[0], data, horizontal=False)
    legend_above(figure, panels[0])
    return figure, data
