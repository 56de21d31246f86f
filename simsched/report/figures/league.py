"""The figure of a league: the share of the way from FIFO to the bound, with intervals."""

from __future__ import annotations

import pandas as pd

from simsched.report.figures.lettering import label_text
from simsched.report.figures.style import PALETTE, Drawn, new_figure, styled
from simsched.results.league import LeagueTable, standings

#: The least share shown.
_LEAST = -1.0


def way_to_the_bound(table: LeagueTable, *, title: str) -> Drawn | None:
    """Draw the share of the way from FIFO to the bound of each policy that ran all contests; None without any.

    The data are `policy, oracle, share, low, high`.
    """
    found = [(row, oracles) for oracles in (False, True) for row in standings(table, oracles=oracles).rows]
    if not found:
        return None
    rows = [(row.policy, oracle, row.share.mean, row.share.low, row.share.high) for row, oracle in found]
    data = pd.DataFrame(rows, columns=["policy", "oracle", "share", "low", "high"])
    with styled():
        caption = "0: as FIFO; 1: at the bound, below which no schedule comes. Bars are 95 % intervals; oracles, which "
        caption += f"read what no real scheduler has, in another colour. Shares below {_LEAST:g} are not shown."
        figure = new_figure(7.2, 0.8 + 0.21 * len(rows), title, caption)
        axes = figure.subplots()
        for place, (_, oracle, share, low, high) in enumerate(rows):
            colour = PALETTE[1] if oracle else PALETTE[0]
            if low is not None and high is not None:
                axes.plot([low, high], [place, place], color=colour, linewidth=1)
            axes.plot([share], [place], "s" if oracle else "o", color=colour, markersize=4)
        axes.axvline(0, color="#888888", linewidth=0.8)
        axes.set_yticks(range(len(rows)), [label_text(name) for name in data["policy"]])
        axes.set_ylim(len(rows) - 0.4, -0.6)
        axes.set_xlim(max(_LEAST, min(-0.05, float(data["share"].min()) - 0.05)), 1.02)
        axes.set_xlabel("share of the way from FIFO to the bound")
    return figure, data
