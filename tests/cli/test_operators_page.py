"""The commands of docs/operators.md run as they stand, on the log that ships."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable
from pathlib import Path

PAGE = Path(__file__).resolve().parents[2] / "docs" / "operators.md"


def commands() -> list[list[str]]:
    """Return the commands of the page's first four sections."""
    text = PAGE.read_text(encoding="utf-8").split("## Time limits")[0]
    blocks = re.findall(r"(?ms)^```\w*\n(.*?)^```$", text)
    lines = [line for block in blocks for line in block.splitlines() if line.startswith("simsched ")]
    return [shlex.split(line)[1:] for line in lines]


def test_the_commands_of_the_page_run_as_they_stand(simsched: Callable) -> None:
    found = commands()
    assert {words[0] for words in found} == {"new", "calibrate", "what-if", "capacity", "forecast"}
    said = {}
    for words in found:
        done = simsched(*words)
        assert done.exit_code == 0, (words, done.output)
        said.setdefault(words[0], []).append(done.stdout)
    (calibrated,) = said["calibrate"]
    assert calibrated.startswith("The replay may answer")
    assert all("Forecast of" in text and "NOT TRUSTED" not in text for text in said["what-if"])
    assert "are enough" in said["capacity"][0]
    assert "Slurm" in said["forecast"][0]
    assert "of the starts came within the 80 % intervals" in said["forecast"][1]
    page = Path("results/log/answers.html").read_text(encoding="utf-8")
    places = [page.index(f'id="{name}"') for name in ("calibrate", "what-if", "capacity", "forecast", "words")]
    assert places == sorted(places)


def test_a_log_that_lacks_what_matters_gets_no_answer(simsched: Callable) -> None:
    assert simsched("new", "log").exit_code == 0
    header, *rows = Path("log.txt").read_text(encoding="utf-8").splitlines()
    place = header.split("|").index("Partition")
    cells = [row.split("|") for row in rows]
    blank = ["|".join([*one[:place], "", *one[place + 1 :]]) for one in cells]
    Path("stripped.txt").write_text("\n".join([header, *blank]) + "\n", encoding="utf-8")
    conf = ("--conf", "slurm.conf", "--conf", "qos.txt", "--json", "--no-plots")
    done = simsched("capacity", "stripped.txt", "--cluster", "cluster.txt", *conf, "--target", "queueing_mean_h<=4")
    told = json.loads(done.stdout)
    assert told["answers"] == []
    assert not told["gate"]["open"]
    assert "name no partition" in told["gate"]["reasons"][0]
    # Nor does the log under a policy that was not in force.
    other = ("--policy", "kueue", "--change", "cluster.groups.0.nodes=12", "--json", "--no-plots")
    wrong = json.loads(simsched("what-if", "log.txt", "--cluster", "cluster.txt", *other).stdout)
    assert wrong["effects"] == []
    assert not wrong["gate"]["open"]
