"""What is not YAML is refused in words that name the line and what to do, and never in those of the parser."""

import pytest

from simsched.documents import yaml_lines
from simsched.errors import InputError


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
        ("a:\n    b: 1\n  c: 2\n", "f:3: is not valid YAML: the indentation differs from other lines of the mapping"),
        ("- a\nb: 1\n", "the indentation differs from other lines of the list that begins in line 1"),
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
