"""Nodes rented over time, and the efficiency of the jobs on them: the two panels of Pollux's Figure 9."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from simsched.report.figures.over_time import bin_edges, binned, over_seeds, spanned
from simsched.report.figures.style import Drawn, Look, legend_above, looks, new_figure, span_words, styled
from simsched.report.units import HOUR_S, MINUTE_S, time_unit
from simsched.results import CurvePoint, Floats, held_between_rounds, integrals
from simsched.words import duration

_MOST_BINS = 400
_MOST_SPANS = 2  # the number of nodes varies so much between seeds that more bands would hide the lines
#: The columns of `rounds` that are needed here.
NODE_COLUMNS = ("time_s", "provisioned_nodes")


class Rental(NamedTuple):
    """The data of one cell: its rounds, its intervals, and the second at which its last job ends."""

    rounds: pd.DataFrame
    intervals: pd.DataFrame
    makespan_s: float


def nodes_data(rentals: Mapping[str, Iterable[Rental]]) -> pd.DataFrame:
    """Bin nodes rented and mean efficiency of every policy and seed: mean over seeds, lowest and highest seed.

    Columns: `policy, time_s` (start of the bin), `nodes, nodes_low, nodes_high, efficiency, efficiency_low,
    efficiency_high`. A finished seed rents no nodes.
    """
    known = {label: list(found) for label, found in rentals.items()}
    last_s = max((one.makespan_s for found in known.values() for one in found), default=0.0)
    edges = bin_edges(last_s, _MOST_BINS)
    edges[-1] = max(last_s, 1.0)  # the last bin ends with the last job
    frames = []
    for label, found in known.items():
        nodes, efficiency = [_rented(one, edges) for one in found], [binned(one.intervals, edges)[1] for one in found]
        frames.append(over_seeds(label, edges[:-1].astype(int), {"nodes": nodes, "efficiency": efficiency}))
    return pd.concat(frames, ignore_index=True)


def _rented(rental: Rental, edges: Floats) -> Floats:
    """Return the mean number of nodes in each bin; the first decision's holds from second 0 on."""
    held = held_between_rounds(rental.rounds, "provisioned_nodes", rental.makespan_s)
    return integrals(*held, edges) / np.diff(edges)


def nodes_over_time(
    data: pd.DataFrame,
    *,
    seeds: int,
    title: str = "Nodes over time",
    styles: Mapping[str, Look] | None = None,
    curves: Sequence[CurvePoint] = (),
    rented: bool = True,
) -> Drawn:
    """Draw nodes rented and mean statistical efficiency over time, one line per policy; `data` is of `nodes_data`.

    Without `rented`, nodes come and go because they fail. There is no panel of efficiency if all jobs know only their
    duration. Published `curves` of the panels `nodes` and `efficiency` (in per cent), with policies as series and x in
    hours, are drawn thin in the colour of their policy.
    """
    styles = styles or looks(data["policy"])
    width_s = int(data["time_s"].iloc[1] - data["time_s"].iloc[0]) if len(data) > 1 else MINUTE_S
    unit = time_unit(float(data["time_s"].max()) + width_s)
    several = data["policy"].nunique()
    spans = seeds > 1 and several <= _MOST_SPANS
    with styled():
        trains = bool((data["efficiency"].dropna() < 1).any())
        caption = _caption(seeds, width_s, span_words(several) if spans else "", curves, rented=rented, trains=trains)
        figure = new_figure(7.2, 4.6 if trains else 2.6, title, caption)
        panels = figure.subplots(1 + trains, 1, sharex=True, squeeze=False)[:, 0]
        shown = list(zip(panels, ("nodes", "efficiency"), (1, 100), strict=False))
        for place, (label, part) in enumerate(data.groupby("policy", sort=False)):
            middle, look = (part["time_s"] + width_s / 2) * unit.factor, styles[str(label)]
            for axes, name, factor in shown:
                style = "steps-mid" if name == "nodes" and seeds == 1 else "default"
                line = {"color": look.colour, "linestyle": look.dash, "drawstyle": style}
                (curve,) = axes.plot(middle, factor * part[name], label=str(label), **line)
                if spans:
                    spanned(curve, part, name, factor, look, place, several)
        for axes, point_of, _ in shown:
            _published(axes, [point for point in curves if point.panel == point_of], unit.factor * HOUR_S, styles)
        panels[0].set(
            title="Nodes rented" if rented else "Nodes up",
            ylabel="nodes",
            ylim=(0, 1.08 * float(data["nodes_high"].max())),
        )
        panels[0].yaxis.set_major_locator(MaxNLocator(integer=True))
        if trains:
            panels[1].set(title="Mean statistical efficiency of running jobs", ylabel="efficiency (%)", ylim=(0, 103))
        panels[-1].set(xlim=(0, None), xlabel=unit.title("time since the start of the workload"))
        legend_above(figure, panels[0])
    return figure, data


def _published(axes: Axes, curves: Sequence[CurvePoint], factor: float, styles: Mapping[str, Look]) -> None:
    for label, look in styles.items():
        points = [(point.x * factor, point.y) for point in curves if point.series == label]
        if points:
            x, y = zip(*points, strict=True)
            axes.plot(x, y, color=look.colour, linewidth=0.9, alpha=0.6, marker=".", markersize=3)


def _caption(seeds: int, width_s: int, spans: str, curves: Sequence[CurvePoint], *, rented: bool, trains: bool) -> str:
    text = f"Means over {duration(width_s)}"
    if seeds > 1:
        text += f" and over {seeds} seeds{spans}"
        text += ". A seed whose jobs are done " + ("rents nothing any more" if rented else "counts no node any more")
    if curves:
        text += ". Thin lines with dots: published"
    if rented:
        text += ". A node is rented while it is up or starting; the area under a line is what the cluster costs."
    else:
        text += ". A node is up unless it has failed and is not yet repaired."
    if not trains:
        return text
    return text + " The efficiency of a job is its progress per example relative to its initial batch size."
