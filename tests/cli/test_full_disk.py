"""A disk that fills while figures are drawn."""

import errno
import json
import os
from pathlib import Path

import pytest

from simsched.files import written_aside

pytestmark = pytest.mark.usefixtures("in_this_process")


@pytest.fixture
def full_disk(monkeypatch):
    """Let every picture meet a full disk after some bytes, as the system tells it: without the name of a file."""

    def savefig(self, target, **how):
        with Path(target).open("wb") as file:
            file.write(b"some bytes")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("matplotlib.figure.Figure.savefig", savefig)


def test_the_table_is_printed_and_a_line_names_the_figure_that_could_not_be_written(simsched, folder, full_disk):
    done = simsched("run", "tiny.yaml", "-j", "1", "-o", "report.plots=true")
    assert done.exit_code == 1
    assert "mean JCT" in done.stdout
    said = [line for line in done.stderr.splitlines() if line.startswith("simsched:")]
    assert len(said) == 1
    assert "results/tiny/figures/bars.png: No space left on device; the results are complete" in said[0]
    assert "simsched plot results/tiny" in said[0]
    assert list((folder / "results/tiny/figures").iterdir()) == []
    done = simsched("run", "tiny.yaml", "-j", "1", "-o", "report.plots=true", "--json")
    assert done.exit_code == 1
    assert json.loads(done.stdout)["figures"] == []


def test_plot_names_the_file(simsched, full_disk):
    simsched("run", "tiny.yaml", "-j", "1")
    done = simsched("plot", "results/tiny")
    assert done.exit_code == 1
    assert done.stderr == "simsched: results/tiny/figures/bars.png: No space left on device\n"


def test_an_error_of_another_file_keeps_its_name(tmp_path):
    with pytest.raises(OSError, match="elsewhere"), written_aside(tmp_path / "target"):
        raise OSError(errno.ENOSPC, "full", "elsewhere")
    with pytest.raises(OSError, match="target"), written_aside(tmp_path / "target") as aside:
        raise OSError(errno.ENOSPC, "full", str(aside))
