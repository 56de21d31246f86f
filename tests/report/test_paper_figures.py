"""Figures for papers: their widths, letters and LaTeX, and colours that keep to a policy and differ in grey."""

from itertools import combinations

import numpy as np
import pandas as pd
import pytest
from matplotlib.colors import to_rgb
from matplotlib.text import Text

from simsched.report.figures.distribution import jct_cdf
from simsched.report.figures.output import WIDTHS, save
from simsched.report.figures.style import area_colours, looks, new_figure, row_looks, styled

TIMES = {name: [np.array([60, 600, 6000]), np.array([70, 900, 4000])] for name in ("pollux", "las & fifo")}


@pytest.mark.parametrize("style", sorted(WIDTHS))
def test_a_figure_for_a_paper_has_its_width_and_no_title(tmp_path, style):
    figure, data = jct_cdf(TIMES, title="run_1: job completion times")
    paths = save(figure, data, tmp_path, "cdf", ("pdf",), style)
    assert [path.name for path in paths] == ["cdf.tex", "cdf.pdf", "cdf.csv"]
    assert figure.get_size_inches()[0] == WIDTHS[style]
    shown = [text for text in figure.findobj(Text) if text.get_visible() and text.get_text()]
    legend = figure.legends[0].get_window_extent()
    assert legend.y1 <= figure.bbox.height, "nothing of the legend is cut off"
    assert min(text.get_fontsize() for text in shown) >= 6
    assert "run_1: job completion times" not in [text.get_text() for text in shown]
    latex = paths[0].read_text()
    assert rf"\includegraphics[width=\{'columnwidth' if style == 'one-column' else 'textwidth'}]{{cdf}}" in latex
    assert r"run\_1: job completion times. Each line" in latex
    pdf = paths[1].read_bytes()
    assert b"/FontFile2" in pdf  # TrueType, embedded
    assert b"/Subtype /Type3" not in pdf


def test_a_figure_for_a_page_stays_as_it_is(tmp_path):
    figure, data = jct_cdf(TIMES, title="t")
    assert [path.name for path in save(figure, data, tmp_path, "cdf", ("pdf",))] == ["cdf.pdf", "cdf.csv"]
    assert figure.get_size_inches()[0] == 6.6


def test_several_curves_have_whiskers_side_by_side_and_one_has_a_band():
    several = jct_cdf(TIMES)[0].axes[0]
    assert len(several.containers) == 2
    marked = [line.get_marker() for line in several.lines if line.get_marker() not in ("None", "|", "_")]
    assert len(set(marked)) == 2, "markers tell in grey whose whiskers they are"
    ours, theirs = ({round(float(place)) for place in one[2][0].get_segments()[0][:, 0]} for one in several.containers)
    assert not ours & theirs
    alone = jct_cdf({"pollux": TIMES["pollux"]})[0]
    assert not alone.axes[0].containers
    assert "the band spans the lowest" in alone.texts[1].get_text()


def test_a_long_title_of_a_panel_is_broken_to_its_width(tmp_path):
    with styled():
        figure = new_figure(6, 2, "t", "c")
        for axes in figure.subplots(1, 2):
            axes.set_title("admitted deadlines met (%)")
    save(figure, pd.DataFrame(), tmp_path, "two", ("pdf",), "one-column")
    assert [axes.get_title(loc="left") for axes in figure.axes] == ["admitted deadlines\nmet (%)"] * 2


@pytest.mark.parametrize("count", [2, 4, 7])
def test_colours_of_areas_are_told_apart_in_grey(count):
    names = [f"application {number}" for number in range(count)]
    colours = area_colours([*names, "others"] if count == 7 else names)
    greys = [lightness(colour) for colour in colours.values()]
    assert min(abs(one - other) for one, other in combinations(greys, 2)) > 7
    assert [greys[: len(names)]] == [sorted(greys[: len(names)])]


def lightness(colour):
    """Return CIE L* (1976) of a colour of sRGB: IEC 61966-2-1 for the linear parts, Rec. 709 for their luminance."""
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in to_rgb(colour)]
    return 116 * (0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]) ** (1 / 3) - 16


class Row:
    def __init__(self, policy, name=""):
        self.shown_policy, self.shown_name = policy, name or policy


class Run:
    shown_policies = ("srtf †", "pollux", "mine", "fifo")


def test_a_policy_keeps_its_colour_where_others_are_left_out_or_values_stand_behind_its_name():
    everywhere = looks(Run.shown_policies)
    assert row_looks(Run, [Row("mine"), Row("fifo")])["mine"] == everywhere["mine"]
    swept = row_looks(Run, [Row(name, f"{name} [load={load}]") for load in (1, 2) for name in ("pollux", "mine")])
    assert {swept["mine [load=1]"].colour, swept["mine [load=2]"].colour} == {everywhere["mine"].colour}
    assert swept["mine [load=1]"].dash != swept["mine [load=2]"].dash
    alone = row_looks(Run, [Row("pollux", f"pollux [p={p}]") for p in (1, -1)])
    assert len({look.colour for look in alone.values()}) == 2


def test_eight_lines_can_be_told_apart_in_grey():
    """By their dashes, or by at least 7 of lightness."""
    found = list(looks(f"p{number}" for number in range(8)).values())
    for one, other in combinations(found, 2):
        assert one.dash != other.dash or abs(lightness(one.colour) - lightness(other.colour)) >= 7
