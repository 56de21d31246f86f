"""A small experiment and a way to run commands on it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from simsched.cli.main import cli
from simsched.operators.capacity import Search
from tests.campaigns import WHOLE

TRACE = "submit_time,num_gpus,duration\n" + "".join(f"{37 * i},{1 + i % 4},{100 + 53 * i}\n" for i in range(12))
EXPERIMENT = """\
name: tiny
description: a test
cluster: {nodes: 2, gpus_per_node: 4}
workload: {path: jobs.csv, recipe: replay, sample: 10}
policies:
  - {name: fifo}
  - {name: tiresias, params: {interval_s: 30}}
seeds: 2
report: {plots: false}
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make a folder with `tiny.yaml` and its trace, and go there."""
    (tmp_path / "jobs.csv").write_text(TRACE)
    (tmp_path / "tiny.yaml").write_text(EXPERIMENT)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def simsched(folder: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch):
    """Return a function that runs the command in this process, with a text as its standard input."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.getbasetemp() / "cache"))

    def run(*arguments: str, stdin: str | None = None) -> Result:
        return CliRunner().invoke(cli, list(arguments), input=stdin, prog_name="simsched")

    return run


@pytest.fixture
def tables():
    """Return a function that reads the bytes of all result files of a run but the manifests, by cell and name."""

    def read(run: Path) -> dict[str, bytes]:
        files = [path for path in sorted((run / "cells").rglob("*")) if path.is_file() and path.name != "manifest.json"]
        files.append(run / "run.json")
        return {path.relative_to(run).as_posix(): path.read_bytes() for path in files}

    return read


@pytest.fixture(scope="module")
def few_nodes_tried() -> Iterator[None]:
    """Let `capacity` try today's nodes and, where they are too few, twice as many; the search has tests of its own.

    Where everything is played, nothing is changed.
    """

    def find(search: Search, _: int, first: int, __: int) -> int | None:
        return next((number for number in (first, 2 * first) if search.measure([number])[number]), None)

    with pytest.MonkeyPatch.context() as patch:
        if not WHOLE:
            patch.setattr(Search, "find", find)
        yield
