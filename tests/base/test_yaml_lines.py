"""YAML with lines: values, errors, and what breaks its syntax."""

import pytest

from simsched.documents import yaml_lines
from simsched.documents.yaml_lines import load, parse, parse_value
from simsched.errors import InputError
from simsched.paths import data_folder


def test_every_key_and_item_knows_its_line():
    document = parse("name: a\npolicies:\n  - name: fifo\n    params: {x: 1}\n  - name: srtf\n", "f.yaml")
    assert document.data == {"name": "a", "policies": [{"name": "fifo", "params": {"x": 1}}, {"name": "srtf"}]}
    assert document.lines["name",] == 1
    assert document.lines["policies", 0] == 3
    assert document.lines["policies", 0, "params", "x"] == 4
    assert document.lines["policies", 1, "name"] == 5
    assert document.line(("policies", 1, "params", "missing")) == 5
    assert document.line(("nowhere",)) == 0


def test_scalars_are_those_of_yaml_1_2():
    text = "a: on\nb: 1:30\nc: 1e-3\nd: 010\ne: 2024-01-01\nf: true\ng: ~\nh: -1\ni: .inf\nj: '5'\nk: 1_000\n"
    data = parse(text, "f.yaml").data
    assert data == {
        "a": "on", "b": "1:30", "c": 0.001, "d": 10, "e": "2024-01-01", "f": True, "g": None, "h": -1,
        "i": float("inf"), "j": "5", "k": 1000,
    }  # fmt: skip
    assert type(data["h"]) is int
    assert type(data["c"]) is float


def test_merged_mappings_keep_the_lines_of_their_origin():
    document = parse("base: &b\n  x: 1\n  y: 2\nown:\n  <<: *b\n  y: 3\n", "f.yaml")
    assert document.data["own"] == {"x": 1, "y": 3}
    assert document.lines["own", "x"] == 2
    assert document.lines["own", "y"] == 6


def test_all_keys_given_twice_are_reported_at_once():
    with pytest.raises(InputError) as caught:
        parse("a: 1\nb: {c: 1, c: 2}\na: 3\n7: x\n", "f.yaml")
    assert [str(problem) for problem in caught.value.problems] == [
        "f.yaml:3: the key 'a' is given twice, first in line 1; keep one of them",
        "f.yaml:2: the key 'b.c' is given twice, first in line 2; keep one of them",
        "f.yaml:4: '7' is a key but not text; put it in quotes",
    ]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "f.yaml: is empty"),
        ("- 1\n- 2\n", "f.yaml:1: holds a list, not a mapping"),
        ("just text", "f.yaml:1: holds the single value 'just text'"),
        ("a: 1\nb: [1, 2\n", "f.yaml:3: is not valid YAML"),
        ("a: 1\n  b: 2\n", "f.yaml:2: is not valid YAML"),
        ("a: 1\n---\nb: 2\n", "f.yaml:2: is not valid YAML"),
        ("a: &x [*x]", "f.yaml:1: an alias is inside"),
        ("a: !!python/object:os.system x", "f.yaml:1: is not valid YAML: a value has a tag such as !name"),
        ("a: \x01", "f.yaml: is not valid YAML: character 3"),
        ("? [a]\n: 1\n", "f.yaml:1: a list or a mapping is a key but not text"),
    ],
)
def test_bad_yaml_is_refused_with_its_line(text, said):
    with pytest.raises(InputError) as caught:
        parse(text, "f.yaml")
    assert str(caught.value).startswith(said)


def test_unreadable_files_are_named(tmp_path):
    latin = tmp_path / "latin.yaml"
    latin.write_bytes(b"name: caf\xe9\n")
    for path, said in ((tmp_path / "none.yaml", "no such file"), (tmp_path, "is a folder"), (latin, "UTF-8")):
        with pytest.raises(InputError, match=said) as caught:
            load(path)
        assert str(path) in str(caught.value)


def test_a_value_of_an_option_has_no_line():
    assert parse_value("[1, -1, 1e3]", "-o x") == [1, -1, 1000.0]
    assert parse_value("", "-o x") is None
    with pytest.raises(InputError) as caught:
        parse_value("{", "-o x={")
    assert str(caught.value).startswith("-o x={: is not valid YAML")


def test_both_parsers_read_the_same(monkeypatch):
    files = [path for name in ("experiments", "workloads") for path in sorted(data_folder(name).rglob("*.yaml"))][::2]
    assert len(files) > 30
    quick = [yaml_lines.load(file) for file in files]
    monkeypatch.setattr(yaml_lines, "_is_shallow", lambda text: False)
    assert quick == [yaml_lines.load(file) for file in files]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "a: 1\nb: {c: 1\nd: 2\n",
            "f:3: is not valid YAML: the '{' of line 2 is not closed, or a comma is missing; clo",
        ),
        (
            "a: [1, 2\nb: 2\n",
            "f:2: is not valid YAML: the '[' of line 1 is not closed, or a comma is missing; close it",
        ),
        ("a: [1,, 2]\n", "f:1: is not valid YAML: a bracket or brace is not closed, or a comma follows nothing"),
        ("a: 'b\nc: 2\n", "the quote of line 1 is not closed"),
        ('a: "\\q"\n', "in double quotes a backslash begins a sign such as \\n; use single quotes, or \\\\"),
        ("a: 1\n\tb: 2\n", "f:2: is not valid YAML: a tab is used for indentation; indent with blanks"),
        ("a: b: c\n", "a value contains ':', or the line is indented too far"),
        ("a: 1\nb\nc: 2\n", "line 2 has no ':' after its key"),
        ("a:\n    b: 1\n  c: 2\n", "f:3: is not valid YAML: the indentation differs from that of the block"),
        ("- a\nb: 1\n", "the indentation differs from that of the block that begins in line 1"),
        ("a: @x\n", "a value begins with a special character of YAML; put the value in quotes"),
        ("a: *x\n", "a text that begins with * refers to an anchor, but there is none"),
        ("a: !x 1\n", "a value has a tag such as !name"),
        ("a: 1\n---\nb: 2\n", "a second document begins with ---"),
        ("a: ]\n", "it cannot be read from here on"),
    ],
)
def test_broken_yaml_is_explained(text, said):
    with pytest.raises(InputError) as caught:
        yaml_lines.parse(text, "f")
    assert said in str(caught.value)
    assert not any(word in str(caught.value) for word in ("while parsing", "while scanning", "token", "scalar"))
