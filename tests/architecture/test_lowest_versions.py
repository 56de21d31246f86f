"""The lowest versions that are tested are those that pyproject.toml promises."""

import re
import tomllib
from importlib.metadata import version
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PIN = re.compile(r"^(?P<name>[A-Za-z0-9-]+)==(?P<version>[0-9.]+)$", re.MULTILINE)
BOUND = re.compile(r"(?P<name>[A-Za-z0-9-]+)>=(?P<version>[0-9.]+)")


def numbers(text):
    return tuple(map(int, text.split(".")))


def padded(text):
    return (*numbers(text), 0, 0)[:3]


def test_the_lowest_versions_tested_are_the_ones_that_are_promised():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    pins = {found["name"]: found["version"] for found in PIN.finditer((ROOT / "constraints-lowest.txt").read_text())}
    needed = [BOUND.fullmatch(text) for text in project["dependencies"]]
    tested = [*needed, *(BOUND.fullmatch(text) for text in project["optional-dependencies"]["dev"])]
    assert {one["name"] for one in needed} <= set(pins)
    for one in tested:
        if one["name"] in pins:
            assert padded(pins[one["name"]]) == padded(one["version"]), one["name"]


def test_what_is_installed_is_no_older_than_promised():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    for text in project["dependencies"]:
        bound = BOUND.fullmatch(text)
        installed = ".".join(re.findall(r"\d+", version(bound["name"]))[:3])
        assert padded(installed) >= padded(bound["version"]), bound["name"]
