r"""Names on their way out: one rule for each outlet, so that no name can be read there as anything but a name.

A name is whatever a user's file or code says: a label, the id of a job, a tenant, the text of an exception. Signs that
nobody sees, or that turn the text around them, are shown as JSON writes them (`\u001b`), in every outlet.
"""

from __future__ import annotations

import hashlib
import html
import json
import re
import unicodedata
from typing import Any, TextIO

#: Signs without a picture that scripts and emoji need: they join letters, or keep them apart.
_JOINERS = frozenset("\u200c\u200d")
#: Categories of Unicode whose signs have no picture: controls, directions, halves of pairs, ends of lines.
_UNSEEN = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
#: Points that are no characters, which XML refuses.
_NONE = re.compile("[\ufdd0-\ufdef]|[\ufffe\uffff]")
_SIGN = re.compile(r"[^\x20-\x7e\n]")
_FORMULA = re.compile(r"'*[=+\-@\uff1d\uff0b\uff0d\uff20]")
_NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?")
#: Where a cell of Markdown could mean more than its text; an underscore within a word means nothing.
_MARKDOWN = re.compile(r"[\\`*|~]|\](?=\()|!(?=\[)|(?<![^\W_])_|_(?![^\W_])|&(?=#?\w+;)|<")
_MARKDOWN_ENTITIES = {"<": "&lt;", "&": "&amp;"}
_LATEX = str.maketrans(
    {
        "\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": r"\textless{}",
        ">": r"\textgreater{}", "|": r"\textbar{}", "±": r"$\pm$", "†": r"$\dagger$", "‡": r"$\ddagger$",
        **{sign: f"\\{sign}" for sign in "&%$#_{}"},
    }
)  # fmt: skip
_LONGEST_FILE_NAME = 100


def visible(text: str) -> str:
    r"""Show the signs of a text that have no picture as `\u001b`; lines stay lines.

    Inside a text of JSON the outcome is JSON of the same content.
    """
    return text if text.isascii() and text.replace("\n", "").isprintable() else _SIGN.sub(_shown, text)


def one_line(text: str) -> str:
    """Show a text as `visible` does, the ends of its lines too."""
    return visible(text).replace("\n", r"\u000a")


def _shown(found: re.Match[str]) -> str:
    sign = found[0]
    if sign in _JOINERS or (unicodedata.category(sign) not in _UNSEEN and not _NONE.match(sign)):
        return sign
    code = sign.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{code[at]:02x}{code[at + 1]:02x}" for at in range(0, len(code), 2))


def json_text(content: object, **how: Any) -> str:
    """Write JSON that any terminal and any file takes; `how` are options of `json.dumps`."""
    return visible(json.dumps(content, ensure_ascii=False, **how))


def html_text(text: str) -> str:
    """Write a text for a page of HTML, between tags or in an attribute."""
    return html.escape(visible(text))


def html_data(content: object) -> str:
    """Write data for a script of a page, which cannot end the script."""
    return json_text(content, separators=(",", ":")).replace("<", "\\u003c")


def csv_cell(value: object) -> object:
    """Write a text for a cell of CSV on one line; one that a spreadsheet could take for a formula gets an apostrophe.

    Numbers stay what they are, those that stand in a text too (see OWASP, CSV injection).
    """
    if not isinstance(value, str):
        return value
    text = one_line(value)
    return f"'{text}" if _FORMULA.match(text) and not _NUMBER.fullmatch(text) else text


def markdown_text(text: str) -> str:
    """Write a text for a cell or a line of Markdown, blanks as one."""
    line = " ".join(one_line(text).split())
    escaped = _MARKDOWN.sub(lambda found: _MARKDOWN_ENTITIES.get(found[0], f"\\{found[0]}"), line)
    return escaped.replace("$", r"\$") if escaped.count("$") > 1 else escaped  # a pair begins a formula


def latex_text(text: str) -> str:
    """Write a text for a cell of LaTeX; it ends no row and is no option of one."""
    escaped = one_line(text).translate(_LATEX).replace("--", "-{}-")
    return f"{{}}{escaped}" if escaped.startswith(("[", "*")) else escaped


def formula_text(text: str) -> str:
    """Write a text where matplotlib would set what stands between dollars as a formula."""
    return text.replace("$", r"\$")


def file_name(text: str) -> str:
    """Make a name of a file: letters, digits and `._-` stay; what would be lost otherwise stands in a hash behind."""
    plain = re.sub(r"[^A-Za-z0-9._-]", "_", text).lstrip(".")
    if plain == text and len(plain) <= _LONGEST_FILE_NAME:
        return plain
    kept = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    return f"{plain[:_LONGEST_FILE_NAME]}-{kept}".lstrip("-")


def shortened(text: str, longest: int) -> str:
    """Leave out the middle of a text that is longer than so many signs: names mostly differ at an end."""
    if len(text) <= longest:
        return text
    end = (longest - 1) // 2
    return f"{text[: longest - 1 - end]}…{text[-end:]}"


def cells_wide(text: str) -> int:
    """Return how many columns of a terminal a text takes: Chinese signs take two, accents none."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(sign) or sign in _JOINERS else 1 + (unicodedata.east_asian_width(sign) in "WF")
        for sign in text
    )


class SafeStream:
    """A stream to which only what can be seen is written, in the signs that its encoding has.

    `plain` is the stream behind it, for those who write colours and send names through `visible` themselves.
    """

    def __init__(self, plain: TextIO) -> None:
        """Write to `plain`."""
        self.plain = plain

    def write(self, text: str | bytes) -> int:
        """Write a text; bytes, which `click` prints for shells, are UTF-8."""
        if isinstance(text, bytes):
            text = text.decode("utf-8", "replace")
        code = getattr(self.plain, "encoding", None) or "utf-8"
        self.plain.write(visible(text).encode(code, "backslashreplace").decode(code))
        return len(text)

    def writelines(self, lines: list[str]) -> None:
        """Write several texts."""
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        """Be the stream behind in all else, except that its bytes are out of reach."""
        if name == "buffer":
            raise AttributeError(name)
        return getattr(self.plain, name)


def plain_stream(stream: TextIO) -> TextIO:
    """Return the stream behind a safe one, or the stream itself."""
    return stream.plain if isinstance(stream, SafeStream) else stream
