"""Sheets of measured and modelled applications: a panel each, circles for measured, lines for modelled."""

import pandas as pd

from simsched.report.figures.models import efficiency_sheet, throughput_sheet


def throughputs():
    return pd.DataFrame(
        [
            {"application": name, "source": source, "gpus": gpus, "batch_size": size, "throughput": 10.0 * gpus + extra}
            for name, counts in (("a", (1, 2, 4)), ("b", (1,)))
            for size in (8, 16)
            for gpus in counts
            for source, extra in (("measured", 0.5), ("model", 0.0))
        ]
    )


def test_each_application_has_a_panel_with_circles_and_lines():
    figure, data = throughput_sheet(throughputs())
    panels = [axes for axes in figure.axes if axes.get_visible()]
    assert [axes.get_title(loc="left") for axes in panels] == ["a", "b"]
    shown = [line for line in panels[0].get_lines() if len(line.get_xdata())]
    circles = [line for line in shown if line.get_marker() == "o"]
    lines = [line for line in shown if line.get_linestyle() == "-"]
    assert [list(line.get_ydata()) for line in circles] == [[10.5, 20.5, 40.5]] * 2
    assert [list(line.get_ydata()) for line in lines] == [[10.0, 20.0, 40.0]] * 2
    assert [text.get_text() for text in panels[0].get_legend().get_texts()] == ["8", "16"]
    assert len(data) == 16


def test_a_model_of_one_point_is_seen():
    figure, _ = throughput_sheet(throughputs())
    bars = [line for line in figure.axes[1].get_lines() if line.get_marker() == "_"]
    assert [list(line.get_ydata()) for line in bars] == [[10.0]] * 2


def test_efficiency_is_drawn_in_per_cent():
    table = pd.DataFrame(
        [
            {"application": "a", "source": source, "progress": done, "batch_size": 8, "efficiency": 0.5 + done / 4}
            for done in (0.0, 0.5)
            for source in ("measured", "model")
        ]
    )
    figure, data = efficiency_sheet(table)
    line = figure.axes[0].get_lines()[0]
    assert (list(line.get_xdata()), list(line.get_ydata())) == ([0, 50], [50, 62.5])
    assert data["efficiency"].tolist() == [0.5, 0.5, 0.625, 0.625]
