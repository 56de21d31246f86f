"""Odd names in tables, figures, reports and the terminal, where they must do no harm."""

import csv
import io
import json
import random
import shutil
from pathlib import Path

import yaml

from benchmarks.abuse.command import TooSlowError, here
from benchmarks.abuse.fuzz import fault
from benchmarks.abuse.tries import Ending

_NAMES = (
    "sjf ($x_$)",
    "$\\frac{",
    "a_b^c",
    "\\",
    "%",
    "=1+1",
    "+1",
    "-1",
    "@SUM(A1)",
    "<script>alert(1)</script>",
    "</svg>",
    "&amp;",
    "|",
    "`",
    "*b*",
    "[a](javascript:b)",
    "\x1b[2Ja",
    "\x07",
    "a\tb",
    "a\nb",
    "a\rb",
    "\u202eabc",
    "\u200b",
    "\u2028",
    "日本語",
    "العربية",
    "é" * 60,
    "a" * 3000,
    "🙂",
    "../../x",
    "/dev/null",
    "con",
    ".",
    "..",
    " ",
    "a b",
    "'",
    '"',
    "{}",
    "{0}",
    "%s",
    "None",
    "nan",
    "true",
    "1",
    "1e5",
    "\x00",
    "\ufeff",
    "<!--",
    "-->",
    "]]>",
    ",",
    ";",
    "#",
    "a,b",
    "#N/A",
)
_LONGEST_S = 120


def attempt(folder: Path, chance: random.Random) -> Ending:
    """Run an experiment with odd labels, job ids, tenants and users, and show everything."""
    shutil.rmtree(folder / "results", ignore_errors=True)
    with (folder / "jobs.csv").open("w", encoding="utf-8", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(("job_id", "submit_time", "num_gpus", "duration", "tenant", "user"))
        for i in range(8):
            rows.writerow(
                (f"{i}{chance.choice(_NAMES)}", 40 * i, 1 + i % 3, 90 + i, chance.choice(_NAMES), chance.choice(_NAMES))
            )
    labels = chance.sample(_NAMES, 2)
    content = {
        "name": "names",
        "cluster": {"nodes": 2, "gpus_per_node": 4},
        "workload": {"path": "jobs.csv", "recipe": "replay"},
        "description": chance.choice(_NAMES),
        "report": {"plots": chance.random() < 0.3},
        "policies": [{"name": name, "label": label} for name, label in zip(("fifo", "las"), labels, strict=True)],
    }
    (folder / "names.yaml").write_text(yaml.safe_dump(content), encoding="utf-8")
    at = "results/names"
    shown = [
        ("show", at),
        ("show", at, "--by", "tenant"),
        ("show", at, "--markdown"),
        ("show", at, "--csv"),
        ("show", at, "--json"),
        ("compare", at),
        ("report", at),
        ("plot", at),
    ]
    commands = [("run", "names.yaml", "--in-process"), *chance.sample(shown, 4)]
    for number, arguments in enumerate(commands):
        try:
            done = here(folder, *arguments, seconds=_LONGEST_S)
        except TooSlowError:
            return Ending("", f"{' '.join(arguments)}: not done after {_LONGEST_S} s, labels {labels!r}")
        wrong = fault(done) or _harm(arguments, done.stdout, done.stderr)
        if wrong:
            return Ending("", f"{' '.join(arguments)}, labels {labels!r}: {wrong}")
        if done.returncode and not number:
            return Ending("refused with a message")
    pages = list((folder / at).rglob("*.html"))
    if any("<script>alert" in page.read_text(encoding="utf-8") for page in pages):
        return Ending("", f"a script stands in a page, labels {labels!r}")
    return Ending("run and shown")


def _harm(arguments: tuple[str, ...], out: str, err: str) -> str:
    """Return the harm that a text does in its place; empty if none."""
    both = out + err
    if any(one in both for one in "\x1b\x07\x00\u202e"):
        return "a control character reaches the terminal"
    if "--csv" in arguments:
        cells = [cell for row in csv.reader(io.StringIO(out)) for cell in row]
        if any(cell.startswith(("=", "@")) for cell in cells):
            return "a cell of the CSV is a formula"
    if "--markdown" in arguments and "<script>" in out:
        return "a script stands in the Markdown"
    if "--json" in arguments:
        json.loads(out)
    return ""
