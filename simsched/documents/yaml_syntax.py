"""What is wrong with a text that is no YAML, in the words of somebody who writes one."""

from __future__ import annotations

import yaml

_INDENT = "align keys that belong together, and indent what belongs to a key by more blanks than the key"
_GENERAL = ("it cannot be read from here on", "look for quotes, brackets and indentation here and in the line before")

#: What the parser says of where it was and of what it found (parts of its texts), and what that means: a message, in
#: which {began} is the line where the thing under way begins, and a remedy. The first that fits counts.
_MEANINGS = (
    ("flow mapping", "", "the '{{' of line {began} is not closed, or a comma is missing", "close it with '}}'"),
    ("flow sequence", "", "the '[' of line {began} is not closed, or a comma is missing", "close it with ']'"),
    ("flow node", "", "a bracket or brace is not closed, or a comma follows nothing", "close it, or drop the comma"),
    ("", "unknown escape", "in double quotes a backslash begins a sign such as \\n", "use single quotes, or \\\\"),
    ("quoted scalar", "", "the quote of line {began} is not closed", "close it, or double a quote inside the text"),
    ("", "'\\t'", "a tab stands where blanks indent", "indent with blanks"),
    ("", "values are not allowed", "a ':' stands in a value, or the line is indented too far", "quote it, or align it"),
    ("simple key", "':'", "line {began} has no ':' after its key", "write key: value, with a blank after the colon"),
    ("block mapping", "", "a line is indented unlike the others of its mapping, which begins in line {began}", _INDENT),
    ("block collection", "", "a line is indented unlike the others of its list, which begins in line {began}", _INDENT),
    ("", "start any token", "a value begins with a sign that has a meaning in YAML", "put the value in quotes"),
    ("", "undefined alias", "a text that begins with * names an anchor, and there is none", "put it in quotes"),
    ("", "a constructor", "a tag such as !name stands before a value", "leave the tag out"),
    ("single document", "", "a second document begins with ---", "keep one document in a file"),
)


def what_breaks(error: yaml.MarkedYAMLError, line: int) -> tuple[str, str]:
    """Return a message and a remedy for what keeps a text from being YAML; `line` is where it was noticed."""
    began = error.context_mark.line + 1 if error.context_mark else line
    context, problem = error.context or "", error.problem or ""
    for where, what, message, remedy in _MEANINGS:
        if where in context and what in problem:
            return message.format(began=began), remedy.format()
    return _GENERAL
