"""`clean` and `verify` remove cells of simsched's, and nothing else that lies where cells lie."""

import json
import shutil
import sys

import pytest
from click.testing import CliRunner

from simsched.cli.main import cli
from simsched.experiment.running.store import Store

pytestmark = pytest.mark.usefixtures("in_this_process")


@pytest.fixture
def run(folder, simsched):
    """Make a run whose index names only two of its four cells."""
    simsched("run", "tiny.yaml", "-j", "1", "--no-plots")
    simsched("run", "tiny.yaml", "-j", "1", "--no-plots", "-o", "seeds=1", "--name", "tiny")
    return folder / "results/tiny"


def unused(run):
    used = {entry["cell"] for entry in json.loads((run / "run.json").read_text())["cells"]}
    return [path for path in sorted((run / "cells").iterdir()) if path.name not in used]


def everything(folder):
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*")}


def test_without_a_terminal_removal_needs_a_yes(run, simsched):
    before = everything(run)
    (unused(run)[0] / "summary.json").write_text("{}")
    for command in (("clean", "--remove"), ("verify", "results/tiny", "--remove")):
        done = simsched(*command)
        assert done.exit_code == 2
        assert "--remove: asks for confirmation, but there is no terminal; add --yes" in done.stderr
    assert everything(run) == before


@pytest.mark.parametrize(("answer", "left"), [("y\n", 2), ("n\n", 4)])
def test_in_a_terminal_it_is_asked(run, monkeypatch, answer, left):
    with CliRunner().isolation(input=answer) as outputs:
        monkeypatch.setattr(type(sys.stdin), "isatty", lambda self: True, raising=False)
        with pytest.raises(SystemExit) as ended:
            cli(["clean", "--remove"], prog_name="simsched")
    assert ended.value.code == 0
    assert b"Remove 2 cells?" in outputs[1].getvalue()
    assert len(list((run / "cells").iterdir())) == left


def test_a_strangers_files_stay(run, simsched):
    mine = unused(run)
    (run / "cells/thesis.txt").write_text("years")
    (run / "cells/photos").mkdir()
    (run / "cells/photos/one.jpg").write_text("me")
    (mine[0] / "notes.txt").write_text("kept beside a cell")
    stranger = run / "cells" / ("0" * 20)
    stranger.mkdir()
    (stranger / "manifest.json").write_text('{"cell": "another"}')
    for command in (("clean", "--remove", "--yes"), ("verify", "results/tiny", "--remove", "--yes")):
        done = simsched(*command)
        for name, reason in [
            ("thesis.txt", "its name is not that of a cell"),
            ("photos", "its name is not that of a cell"),
            ("0" * 20, "its manifest.json is not that of this cell"),
        ]:
            assert f"{name} stays: {reason}" in done.stderr
    assert (run / "cells/thesis.txt").read_text() == "years"
    assert (run / "cells/photos/one.jpg").is_file()
    assert (stranger / "manifest.json").is_file()
    assert (mine[0] / "notes.txt").is_file()
    assert "holds 'notes.txt', which simsched has not written" in simsched("clean", "--remove", "--yes").stderr
    assert not mine[1].exists()


@pytest.mark.parametrize("what", ["cell", "cells", "run"])
def test_links_are_not_followed(run, folder, simsched, what):
    target = folder / "elsewhere"
    link = {"cell": unused(run)[0], "cells": run / "cells", "run": run}[what]
    shutil.move(link, target)
    link.symlink_to(target, target_is_directory=True)
    damaged = next(target.rglob("summary.json"))
    damaged.write_text("{}")
    before = everything(target)
    simsched("clean", "--remove", "--yes")
    if what != "run":
        verified = simsched("verify", "results/tiny", "--remove", "--yes")
        assert "stays: it is reached through a link" in verified.stderr
        assert verified.exit_code == 1
    assert everything(target) == before


def test_a_cell_whose_manifest_is_gone_is_removed_only_where_all_of_it_is_ours(run, simsched):
    first, second = unused(run)
    (first / "manifest.json").unlink()
    (second / "manifest.json").write_text("[" * 100)
    (second / "notes.txt").write_text("mine")
    done = simsched("verify", "results/tiny", "--remove", "--yes", "--json")
    said = json.loads(done.stdout)
    assert [path.rpartition("/")[2] for path in said["damaged"]] == [first.name, second.name]
    assert [path.rpartition("/")[2] for path in said["removed"]] == [first.name]
    assert list(said["left"].values()) == ["it holds 'notes.txt', which simsched has not written"]
    assert not first.exists()
    assert (second / "notes.txt").is_file()


def test_without_an_index_nothing_shows_whose_a_damaged_cell_is(run, simsched):
    (unused(run)[0] / "manifest.json").unlink()
    (run / "run.json").write_text("{}")
    before = everything(run)
    done = simsched("verify", "results/tiny", "--remove", "--yes")
    assert "stays: nothing shows that simsched has written it" in done.stderr
    assert everything(run) == before


def test_nothing_is_removed_while_a_run_goes_on(run, simsched):
    before = everything(run)
    with Store(run).in_use(), Store(run).in_use():  # several may use a folder at a time
        done = simsched("clean", "--remove", "--yes")
    assert done.stderr.count("stays: a run is using its folder") == 2
    assert done.stdout.splitlines()[-1] == "0 cells removed (0.0 MB)"
    assert everything(run) == before
    assert simsched("clean", "--remove", "--yes").stdout.splitlines()[-1].startswith("2 cells removed")


def test_what_looks_like_a_leftover_and_is_none_stays(tmp_path):
    store = Store(tmp_path / "run")
    store.open()
    (store.cells / ".tmp-notes").mkdir()
    (tmp_path / "elsewhere").mkdir()
    (store.cells / ".tmp-a@here@1").symlink_to(tmp_path / "elsewhere")
    (store.cells / ".tmp-b@here@1").mkdir()
    store.sweep()
    assert sorted(path.name for path in store.cells.iterdir()) == [".tmp-a@here@1", ".tmp-notes"]
