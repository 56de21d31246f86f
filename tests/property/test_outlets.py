"""Whatever a name is, in every outlet it stays a name."""

import csv
import io
import json
import re
import sys
import warnings
from html.parser import HTMLParser
from xml.etree import ElementTree

import pytest
from click.testing import CliRunner
from hypothesis import example, given, strategies as st
from matplotlib.text import Text

from simsched import outlets
from simsched.cli.output import table as aligned
from simsched.report.figures.lettering import with_glyphs
from simsched.report.figures.output import inline_svg, save
from simsched.report.figures.style import legend_above, new_figure, styled
from simsched.report.page.template import filled, page_of
from simsched.report.table import TextTable
from tests.campaigns import played

NASTY = (
    "sjf ($x_$)", "$\\frac{", "\x1b[2J\x1b]0;title\x07", "a\rb\nc\td\0e", "\u202egnp.exe", "\u2066x\u2028y", "中文标签",
    "مرحبا بالعالم", "<script>alert(1)</script>", "<img src=x onerror=alert(1)>", "=1+1", "+cmd|' /C calc'!A0",
    "@SUM(A1)", "-1", "a|b|c", "`code`", "[x](javascript:alert(1))", "![x](http://a/b)", "\\textbf{x} % & # ~ ^ --",
    "[b]bold[/b]",
    "x" * 10_000, "字" * 500,
    "\udc80\ud800", "\ufffe\uffff", "e" + "\u0301" * 200, "_hidden", "", " ", "😀🏳️‍🌈", "'quoted'",
)  # fmt: skip
names = st.one_of(st.sampled_from(NASTY), st.text(max_size=40), st.text(st.characters(), max_size=40))
_UNSEEN = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\xad\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff]")


class Elements(HTMLParser):
    """Counts the elements of a page, with their attributes, and keeps its text."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, tuple[str, ...]]] = []
        self.text = ""

    def handle_starttag(self, tag, attrs):
        self.found.append((tag, tuple(name for name, _ in attrs)))

    def handle_data(self, data):
        self.text += data


def elements(page: str) -> Elements:
    parsed = Elements()
    parsed.feed(page)
    parsed.close()
    return parsed


@given(names)
@example("\x1b[31m\u202e\ud800")
def test_what_nobody_sees_is_shown_once_and_as_json_has_it(name):
    shown = outlets.visible(name)
    assert not _UNSEEN.search(shown)
    assert outlets.visible(shown) == shown
    assert "\n" not in outlets.one_line(name)
    assert json.loads(outlets.json_text({"name": name})) == {"name": name}
    outlets.json_text(name).encode()


def test_letters_of_all_scripts_stay_and_codes_are_those_of_json():
    assert outlets.visible("中文 مرحبا é 😀 क्‍ष") == "中文 مرحبا é 😀 क्‍ष"
    assert outlets.visible("a\x1b[31m\u202eb\n") == "a\\u001b[31m\\u202eb\n"
    assert outlets.visible("\U000e0041") == "\\udb40\\udc41"


@given(names, names)
def test_a_terminal_gets_no_signs_that_steer_it(name, other):
    held = io.StringIO()
    outlets.SafeStream(held).write(aligned((name, "b"), [(other, name), (name, other)]))
    assert not _UNSEEN.search(held.getvalue())
    rows = aligned(("a", "b"), [(other, name), (name, other)])
    assert len(rows.split("\n")) == 4


def test_a_stream_of_few_letters_takes_every_name():
    held = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    outlets.SafeStream(held).write("中 é ±")
    held.flush()
    assert held.buffer.getvalue() == b"\\u4e2d \\xe9 \\xb1"


def test_the_command_writes_through_a_safe_stream_and_leaves_the_streams_as_they_were():
    from simsched.cli.main import cli

    before = sys.stdout, sys.stderr
    done = CliRunner().invoke(cli, ["show", "no\x07\u202esuch"])
    assert (sys.stdout, sys.stderr) == before
    assert done.exit_code == 2
    assert "no\\u0007\\u202esuch" in done.stderr
    assert not _UNSEEN.search(done.output)


@given(names)
def test_a_page_has_the_elements_of_the_page_and_the_name_as_its_text(name):
    table = TextTable(name, ("policy", name), ((name, name), ("b", "1")), (name,), 2)
    plain = TextTable("x", ("policy", "x"), (("x", "x"), ("b", "1")), ("x",), 2)
    page, expected = (page_of(one.title, "", filled("beside.html", tables=((one, ()),))) for one in (table, plain))
    assert elements(page).found == elements(expected).found
    assert outlets.visible(name).strip() in elements(page).text
    page.encode()


@given(names)
def test_data_in_a_page_end_no_script(name):
    page = f'<script type="application/json">{outlets.html_data([name])}</script>'
    found = elements(page)
    assert [tag for tag, _ in found.found] == ["script"]
    assert json.loads(found.text) == [name]


def cells_of_markdown(line: str) -> list[str]:
    """Split a row as the specification of GitHub's Markdown does: at bars without a backslash before them."""
    return re.split(r"(?<!\\)\|", line.strip())[1:-1]


@given(names, names)
def test_markdown_keeps_its_columns_and_opens_no_element(name, other):
    text = TextTable("t", ("policy", name), ((name, other), (other, name)), (name,)).markdown()
    lines = text.split("\n")
    assert all(len(cells_of_markdown(line)) == 2 for line in lines[:4])
    assert len(lines) == 7
    assert "<" not in text
    assert not re.search(r"(?<!\\)(`|\]\(|!\[)", text)
    assert not _UNSEEN.search(text)


def test_markdown_leaves_plain_names_alone():
    plain = "tiresias-g [load=0.5, restart_delay_s=30] 0.76 ±0.05 (0.8) a < b"
    assert outlets.markdown_text("jct_mean_s[all but ncf]") == "jct_mean_s[all but ncf]"
    assert outlets.markdown_text(plain) == plain.replace("<", "&lt;")
    assert outlets.markdown_text("12.3 ±0.5 *") == r"12.3 ±0.5 \*"


@given(names, names)
def test_csv_reads_back_and_holds_no_formula(name, other):
    held = io.StringIO()
    csv.writer(held, lineterminator="\n").writerow([outlets.csv_cell(one) for one in (name, other, -1.5)])
    ((first, second, number),) = csv.reader(io.StringIO(held.getvalue()))
    assert float(number) == -1.5
    for cell, one in ((first, name), (second, other)):
        assert cell.removeprefix("'") == outlets.one_line(one).removeprefix("'") or cell[1:] == outlets.one_line(one)
        assert not re.match(r"[=+\-@\t\r]", cell) or float(cell) is not None


def test_csv_numbers_stay_numbers():
    assert [outlets.csv_cell(one) for one in (-1, 1e-9, "-1.5e3", "+7", None, True)] == [
        -1, 1e-9, "-1.5e3", "+7", None, True,
    ]  # fmt: skip
    assert [outlets.csv_cell(one) for one in ("=1+1", "-x", "@A", "'=1", "a=1", "'a")] == [
        "'=1+1", "'-x", "'@A", "''=1", "a=1", "'a",
    ]  # fmt: skip


@given(names)
def test_latex_has_one_row_a_line_and_only_commands_of_ours(name):
    text = TextTable("t", ("policy", "x"), ((name, "1"),), ()).latex()
    row = text.split("\n")[8]
    assert len(re.findall(r"(?<!\\)&", row)) == 1
    assert row.endswith(r" & 1 \\")
    bare = re.sub(r"\\(textbackslash|textasciitilde|textasciicircum|textless|textgreater|textbar)\{\}", "", row[:-3])
    bare = re.sub(r"\$\\(pm|d?dagger)\$|\\[&%$#_{}]", "", bare)
    assert not re.search(r"[\\%$#^~]", bare)
    assert not row.startswith(("[", "*"))


@given(names)
def test_files_have_short_names_of_plain_letters(name):
    found = outlets.file_name(name)
    assert re.fullmatch(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,120}", found) or not name
    assert found == name or not re.fullmatch(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,50}", name)


def test_file_names_of_two_names_are_two():
    assert outlets.file_name("job-1") == "job-1"
    assert outlets.file_name("a/b") != outlets.file_name("a_b")
    assert outlets.file_name("x" * 300) != outlets.file_name("x" * 301)
    assert len(outlets.file_name("x" * 300)) < 120


def picture(name):
    """Draw a name wherever a figure can have one; returns it with the data behind."""
    import pandas as pd

    with styled():
        figure = new_figure(5, 2.5, f"{name}: title", f"Caption of {name}.")
        left, right = figure.subplots(1, 2)
        left.barh([0, 1], [1, 2], label=name)
        left.set_yticks([0, 1], [name, "b"])
        left.set_title(name)
        right.plot([1, 10], [1, 100], label=f"{name} other")
        right.set_yscale("log")
        right.set_xticks([1, 10], [name, "b"])
        right.annotate(name, (5, 50))
        legend_above(figure, right)
    return figure, pd.DataFrame({"policy": [outlets.one_line(name)], outlets.one_line(name): [-1.5]})


#: Short names of printable ASCII that mean nothing to matplotlib: in figures one is as good as the other.
_PLAIN = [name for name in NASTY if re.fullmatch(r"[ -#%-\[\]^`-~]{1,40}", name)]


@pytest.mark.parametrize("name", played(NASTY, [name for name in NASTY if name not in _PLAIN[1:]]))
def test_figures_are_drawn_without_a_warning(name, tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        figure, data = picture(name)
        paths = save(figure, data, tmp_path, "figure", ("png",))
        drawn = inline_svg(figure, "p-")
    assert [path.suffix for path in paths] == [".png", ".csv"]
    ElementTree.fromstring(drawn.svg)
    header, row = csv.reader(io.StringIO(paths[1].read_text(encoding="utf-8")))
    assert len(header) == len(row) == 2
    assert row[1] == "-1.5"


def test_dollars_are_dollars_and_powers_of_ten_are_still_set_as_such(tmp_path):
    figure, data = picture("sjf ($x_$)")
    save(figure, data, tmp_path, "figure", ("svg",))
    texts = [text for text in figure.findobj(Text) if "sjf" in text.get_text()]
    assert texts
    for text in texts:
        assert not text.get_parse_math() or "\\$x_\\$" in text.get_text()
    assert any("mathdefault" in text.get_text() for text in figure.axes[1].get_yticklabels())


def test_names_that_begin_with_an_underscore_stand_in_the_legend():
    figure, _ = picture("_hidden")
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["_hidden other"]


def test_signs_without_a_glyph_are_told_apart(monkeypatch):
    monkeypatch.setattr("simsched.report.figures.lettering._drawable", lambda sign: sign == "é")
    assert with_glyphs("é中文") == "é\\u4e2d\\u6587"
