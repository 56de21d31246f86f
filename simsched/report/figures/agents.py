"""Schedulers in panels, with a line for each batch-adapting agent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pandas as pd

from simsched.report.figures.style import Drawn, Look, legend_above, looks, new_figure, styled
from simsched.report.figures.sweep import axis_title, draw_panel, sweep_data, value_axis, values_in_order
from simsched.results import Replica, Row

#: The metrics, one row of panels each; ratios if there is a reference, because seeds differ more than agents.
METRICS = ("jct_mean_ratio", "jct_mean_s", "statistical_efficiency")
OWN_AGENT = "batch as submitted"
_WIDEST = 9.0


def agents_of(rows: Sequence[Row]) -> dict[str, tuple[str, str]]:
    """Return policy and agent by the label in figures ("" for the policy's own agent)."""
    found = {}
    for row in rows:
        agent = row.cells[0].manifest.get("agent")
        found[row.shown_policy] = (row.policy_name, str(agent["name"]) if isinstance(agent, Mapping) else "")
    return found


def compares_agents(rows: Sequence[Row]) -> bool:
    """Return whether a policy appears with its own agent and with others."""
    pairs = agents_of(rows).values()
    return any((policy, "") in pairs for policy, agent in pairs if agent)


def agents_data(rows: Sequence[Row], key: str, reference: str = "") -> pd.DataFrame:
    """Gather the data of `agents_panels`: those of `sweep_data`, with columns `panel` and `line`.

    Policies that only run with their own agent are a line in all panels. If the label `reference` is among the rows,
    times are relative to its at the same point and seed.
    """
    pairs = agents_of(rows)
    panels = dict.fromkeys(policy for policy, agent in pairs.values() if agent)
    title = {policy: label for label, (policy, agent) in reversed(pairs.items()) if not agent}
    ratio, time, efficiency = METRICS
    base = {row.point[key]: row.values.get(time, {}) for row in rows if row.policy == reference and key in row.point}
    if base:
        rows = [
            replace(row, values={**row.values, ratio: _relative(row, time, base.get(row.point[key], {}))})
            for row in rows
        ]
    data = sweep_data(rows, key, (ratio if base else time, efficiency))
    parts = []
    for panel in panels:
        for label, (policy, agent) in pairs.items():
            if policy == panel or policy not in panels:
                line = label if policy not in panels else agent or OWN_AGENT
                part = data[data["policy"] == label]
                parts.append(part.assign(panel=title.get(panel, panel), policy=line, line=line))
    return pd.concat(parts, ignore_index=True)


def _relative(row: Row, metric: str, base: Mapping[Replica, float]) -> dict[Replica, float]:
    values = row.values.get(metric, {})
    return {replica: value / base[replica] for replica, value in values.items() if base.get(replica)}


def agents_panels(
    data: pd.DataFrame, key: str, *, title: str, reference: str = "", styles: Mapping[str, Look] | None = None
) -> Drawn:
    """Draw a column of panels for each policy and a row for each metric, over the swept key.

    `reference` is given if values are relative to it.
    """
    names, metrics = list(dict.fromkeys(data["panel"])), list(dict.fromkeys(data["metric"]))
    styles = styles or looks(data["policy"])
    values = values_in_order(data["value"])
    seeds = int(data["seeds"].max())
    caption = f"Mean over {seeds} seeds; whiskers: 95 % interval (Student's t)." if seeds > 1 else "One seed."
    with styled():
        width = min(1.2 + 2.6 * len(names), _WIDEST)
        figure = new_figure(width, 2.5 * len(metrics), title, caption)
        panels = figure.subplots(len(metrics), len(names), squeeze=False, sharex=True, sharey="row")
        for line, metric in zip(panels, metrics, strict=True):
            whole = data[data["metric"] == metric]
            for axes, name in zip(line, names, strict=True):
                draw_panel(axes, whole[whole["panel"] == name], "", values, styles)
                own = axes.get_title(loc="left")
                axes.set_title(f"{name}: {own.replace('reference', reference) if reference else own}")
                value_axis(axes, values)
            line[0].set_ylim(0, 1.06 * max(axes.get_ylim()[1] / 1.06 for axes in line))
        for axes in panels[-1]:
            axes.set_xlabel(axis_title(key))
        legend_above(figure, panels[0, 0])
    return figure, data
