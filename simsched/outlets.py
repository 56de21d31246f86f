r"""Escapes names for each output format: none can act as anything but a name.

Names come from users' files and code: labels, job ids, tenants, texts of exceptions. Invisible characters and those
that change the direction of text are escaped as in JSON (`\u001b`) in every format.
"""

from __future__ import annotations

import hashlib
import json
import re
import unicodedata
from typing import Any, TextIO

#: Invisible characters that scripts and emoji need to join or separate letters.
_JOINERS = frozenset("\u200c\u200d")
#: Unicode categories of invisible characters: controls, directions, surrogates, line ends.
_UNSEEN = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
#: Noncharacters, which XML rejects.
_NONE = re.compile("[\ufdd0-\ufdef]|[\ufffe\uffff]")
_SIGN = re.compile(r"[^\x20-\x7e\n]")
_FORMULA = re.compile(r"'*[=+\-@\uff1d\uff0b\uff0d\uff20]")
_NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?")
#: What Markdown could interpret in a cell; underscores within words are harmless.
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
    r"""Escape a text's invisible characters as `\u001b`, keeping line ends; JSON stays equivalent JSON."""
    return text if text.isascii() and text.replace("\n", "").isprintable() else _SIGN.sub(_shown, text)


def one_line(text: str) -> str:
    """Escape a text as `visible` does, line ends included."""
    return visible(text).replace("\n", r"\u000a")


def _shown(found: re.Match[str]) -> str:
    sign = found[0]
    if sign in _JOINERS or (unicodedata.category(sign) not in _UNSEEN and not _NONE.match(sign)):
        return sign
    code = sign.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{code[at]:02x}{code[at + 1]:02x}" for at in range(0, len(code), 2))


def json_text(content: object, **how: Any) -> str:
    """Return JSON that is safe for terminals and files; `how` are options of `json.dumps`."""
    return visible(json.dumps(content, ensure_ascii=False, **how))


def html_text(text: str) -> str:
    """Escape text for HTML, between tags or in an attribute."""
    from html import escape  # takes a moment

    return escape(visible(text))


def html_data(content: object) -> str:
    """Return data for a script in HTML, which cannot end the script."""
    return json_text(content, separators=(",", ":")).replace("<", "\\u003c")


def csv_cell(value: object) -> object:
    """Return text for a CSV cell on one line, with an apostrophe if a spreadsheet could run it as a formula.

    Numbers are unchanged, also as text (see OWASP, CSV injection).
    """
    if not isinstance(value, str):
        return value
    text = one_line(value)
    return f"'{text}" if _FORMULA.match(text) and not _NUMBER.fullmatch(text) else text


def markdown_text(text: str) -> str:
    """Escape text for a cell or line of Markdown, collapsing blanks."""
    line = " ".join(one_line(text).split())
    escaped = _MARKDOWN.sub(lambda found: _MARKDOWN_ENTITIES.get(found[0], f"\\{found[0]}"), line)
    return escaped.replace("$", r"\$") if escaped.count("$") > 1 else escaped  # a pair begins a formula


def latex_text(text: str) -> str:
    """Escape text for a LaTeX cell; it cannot end a row or become an option."""
    escaped = one_line(text).translate(_LATEX).replace("--", "-{}-")
    return f"{{}}{escaped}" if escaped.startswith(("[", "*")) else escaped


def formula_text(text: str) -> str:
    """Escape text against matplotlib's dollar formulas."""
    return text.replace("$", r"\$")


def file_name(text: str) -> str:
    """Return a file name: others than letters, digits and `._-` become `_`, and a hash keeps names apart."""
    plain = re.sub(r"[^A-Za-z0-9._-]", "_", text).lstrip(".")
    if plain == text and len(plain) <= _LONGEST_FILE_NAME:
        return plain
    kept = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    return f"{plain[:_LONGEST_FILE_NAME]}-{kept}".lstrip("-")


def shortened(text: str, longest: int) -> str:
    """Cut the middle of longer text, as names mostly differ at their ends."""
    if len(text) <= longest:
        return text
    end = (longest - 1) // 2
    return f"{text[: longest - 1 - end]}…{text[-end:]}"


def cells_wide(text: str) -> int:
    """Return the terminal columns of a text: two for Chinese characters, none for accents."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(sign) or sign in _JOINERS else 1 + (unicodedata.east_asian_width(sign) in "WF")
        for sign in text
    )


class SafeStream:
    """A stream that escapes invisible characters and those its encoding lacks.

    `plain` is the underlying stream, for callers that write colours and escape names by `visible`.
    """

    def __init__(self, plain: TextIO) -> None:
        self.plain = plain

    def write(self, text: str | bytes) -> int:
        """Write text, or UTF-8 bytes, as `click` prints for shells."""
        if isinstance(text, bytes):
            text = text.decode("utf-8", "replace")
        code = getattr(self.plain, "encoding", None) or "utf-8"
        self.plain.write(visible(text).encode(code, "backslashreplace").decode(code))
        return len(text)

    def writelines(self, lines: list[str]) -> None:
        """Write several strings."""
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        if name == "buffer":
            raise AttributeError(name)
        return getattr(self.plain, name)


def plain_stream(stream: TextIO) -> TextIO:
    """Return the stream behind a safe one, or the stream itself."""
    return stream.plain if isinstance(stream, SafeStream) else stream
