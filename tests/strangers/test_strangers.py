"""Four strangers: each follows its page, command by command, from a built wheel in an empty folder."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.test_documents import ROOT, installed  # noqa: F401 -- a fixture

STRANGERS = {
    "a student": "docs/how-to/paper.md",
    "an administrator": "docs/operators.md",
    "an engineer": "docs/how-to/kubernetes.md",
    "a researcher of learning": "docs/how-to/learn-a-policy.md",
}
#: Words that stand for something of the reader's, and commands of other programs.
PLACE = re.compile(r"\b(JOB|DIR|RUN|FILE|FOLDER|NAME|DUMP)\b|\.\.\.")


@pytest.mark.parametrize("document", STRANGERS.values(), ids=STRANGERS)
@pytest.mark.skipif("SIMSCHED_STRANGERS" not in os.environ, reason="takes ten minutes: SIMSCHED_STRANGERS=1 plays it")
def test_a_stranger_gets_what_the_page_says(document: str, installed: Path, tmp_path: Path) -> None:  # noqa: F811
    text = (ROOT / document).read_text(encoding="utf-8")
    for name, content in re.findall(r"save this as\s`([\w.-]+)`:\n\n```\w+\n(.*?)```", text, re.DOTALL | re.IGNORECASE):
        (tmp_path / name).write_text(content, encoding="utf-8")
    differing = []
    for command, printed in steps(text):
        done = follow(command, installed, tmp_path)
        said = done.stdout.splitlines() + done.stderr.splitlines()
        assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
        differing += [f"{command}: {line}" for line in printed if line not in said]
    assert differing == []


def steps(text: str) -> Iterator[tuple[str, list[str]]]:
    """Yield the commands of a page, each with the lines that the page shows as its output, up to dots."""
    blocks = re.findall(r"^```(\w*)\n(.*?)^```$", text.replace("\\\n", " "), re.DOTALL | re.MULTILINE)
    pending: list[str] = []
    for language, block in blocks:
        found = [line.removeprefix("$ ") for line in block.splitlines() if re.match(r"(\$ )?simsched [a-z]", line)]
        shown = [] if found or language not in {"", "text"} else [line.rstrip() for line in block.splitlines()]
        if shown and pending:
            yield pending.pop(), [line for line in shown if line.strip() and line.strip() != "..."]
        yield from ((command, []) for command in pending)
        pending = [command for command in found if not PLACE.search(command.partition("#")[0])]
    yield from ((command, []) for command in pending)


def follow(command: str, site: Path, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a command of a page where its reader stands, with the installed package."""
    words = shlex.split(command, comments=True)[1:]
    script = f"import sys; sys.path.insert(0, {str(site)!r}); from simsched.cli.entry import main; main()"
    environment = {**os.environ, "PYTHONPATH": str(site), "COLUMNS": "100", "SIMSCHED_CHECK_INVARIANTS": "0"}
    line = [sys.executable, "-c", script, *words]
    return subprocess.run(line, cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=900)
