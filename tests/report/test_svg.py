import re
from xml.etree import ElementTree

import numpy as np

from simsched.report.figures.distribution import jct_cdf
from simsched.report.figures.output import inline_svg
from simsched.report.figures.style import new_figure


def picture(prefix, label="fifo"):
    times = {label: [np.array([60.0, 120.0, 4000.0])], "other": [np.array([50.0, 90.0, 300.0])]}
    return inline_svg(jct_cdf(times, title="demo: times & more")[0], prefix)


def test_title_and_caption_are_handed_over_and_taken_off_the_drawing():
    found = picture("x-")
    assert found.title == "demo: times & more"
    assert found.caption.startswith("Each line: share of all jobs")
    drawn = [element.text for element in ElementTree.fromstring(found.svg).iter("text")]
    assert "fifo" in drawn
    assert found.title not in drawn
    assert not any(text.startswith("Each line") for text in drawn)


def test_text_stays_text_in_a_font_that_every_machine_has():
    root = ElementTree.fromstring(picture("x-").svg)
    styles = [element.get("style") for element in root.iter("text")]
    assert len(styles) > 5
    assert all("sans-serif" in style for style in styles)


def test_the_same_figure_gives_the_same_text_and_another_prefix_other_ids_only():
    first, again, other = picture("x-"), picture("x-"), picture("y-")
    assert first == again
    ids = set(re.findall(r' id="([^"]*)"', first.svg))
    assert ids
    assert all(name.startswith("x-") for name in ids)
    assert ids.isdisjoint(re.findall(r' id="([^"]*)"', other.svg))
    assert first.svg.replace("x-", "y-") == other.svg


def test_every_reference_stays_within_the_drawing():
    svg = picture("x-").svg
    targets = re.findall(r'href="#([^"]*)"', svg) + re.findall(r"url\(#([^)]*)\)", svg)
    assert targets
    assert set(targets) == set(re.findall(r' id="([^"]*)"', svg))
    assert "http" not in svg


def test_a_label_is_escaped():
    svg = picture("x-", "<b>&").svg
    assert "&lt;b&gt;&amp;" in svg
    assert "<b>" not in svg


def test_the_drawing_is_cropped_where_the_words_were_and_scales():
    root = ElementTree.fromstring(picture("x-").svg)
    left, top, width, height = map(float, root.get("viewBox").split())
    assert (left, width) == (0, 475)  # 6.6 inches of 72 points
    assert 20 <= top <= 26
    assert root.get("width") is None
    lowest = max(float(element.get("y", 0)) for element in root.iter("text") if element.text)
    assert top < lowest < top + height


def test_powers_of_ten_keep_their_digits():
    figure = new_figure(4, 2, "title", "caption")
    figure.add_subplot().loglog([1, 1e6], [1, 1e6])
    root = ElementTree.fromstring(inline_svg(figure, "x-").svg)
    written = ["".join(element.itertext()).replace(" ", "") for element in root.iter("text")]
    groups = ["".join(group.itertext()).replace(" ", "") for group in root.iter("g")]
    assert any("106" in text for text in [*written, *groups])  # ten to the sixth
