"""What every page has around its content: one file, with its own style, that loads nothing."""

from __future__ import annotations

from importlib.resources import files

from simsched.outlets import html_text


def page_of(title: str, kind: str, main: str, *, contents: str = "", script: str = "") -> str:
    """Return a page with a title, a line that says what kind it is, and the HTML of its main part.

    `kind`, `main`, `contents` (behind the heading) and `script` are HTML already; `title` is plain text.
    """
    style = files("simsched.report.page").joinpath("page.css").read_text(encoding="utf-8")
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light">
<title>{html_text(title)}</title>
<style>
{style}</style>
</head>
<body>
<header>
<h1>{html_text(title)}</h1>
<p class="kind">{kind}</p>
{contents}</header>
<main>
{main}
</main>
{script}
</body>
</html>
"""
