"""Cells shared between experiments, and the ratios of finish-time fairness beside a run."""

from __future__ import annotations

import shutil

import pytest

from simsched.errors import InputError
from simsched.experiment.results_name import find_experiment
from simsched.results.reader import read_run

pytestmark = pytest.mark.usefixtures("in_this_process")

RENAME = ("-o", "name=other")


def ran(result) -> tuple[int, int]:
    """Read how many cells were run and how many reused."""
    line = next(line for line in result.output.splitlines() if line.startswith("Results:"))
    numbers = [int(word.strip("(")) for word in line.split() if word.strip("(").isdigit()]
    return numbers[0], numbers[1]


def test_an_experiment_takes_over_the_cells_that_another_has_run(simsched, tables, folder):
    assert ran(simsched("run", "tiny.yaml", "--workers", "1")) == (4, 0)
    assert ran(simsched("run", "tiny.yaml", "--workers", "1", *RENAME, "-o", "seeds=3")) == (2, 4)
    first, second = (tables(folder / "results" / name) for name in ("tiny", "other"))
    shared = {name: content for name, content in first.items() if name != "run.json"}
    assert shared.items() <= second.items()
    shutil.rmtree(folder / "results" / "tiny")
    assert len(read_run(folder / "results" / "other").cells[0].jobs) == 10


def test_a_cell_of_another_experiment_that_is_not_whole_is_not_taken_over(simsched, folder):
    simsched("run", "tiny.yaml", "--workers", "1")
    for summary in (folder / "results").rglob("summary.json"):
        summary.unlink()
    assert ran(simsched("run", "tiny.yaml", "--workers", "1", *RENAME)) == (4, 0)


@pytest.mark.parametrize("definition", ["pollux", "shockwave-static", "shockwave-themis", "gavel"])
def test_every_definition_of_fairness_gives_each_job_a_ratio(simsched, folder, definition):
    asked = ("-o", f"finish_time_fairness.definition={definition}")
    result = simsched("run", "tiny.yaml", "--workers", "1", *asked, "-o", "seeds=1", "--name", "tiny")
    assert result.exit_code == 0, result.output
    run = read_run(folder / "results" / "tiny")
    assert run.fairness["definition"] == definition
    for cell in run.cells:
        assert cell.fairness_file is not None
        assert cell.summary["rho_max"] >= cell.summary["rho_median"] > 0
    assert [cell.policy for cell in run.cells] == ["fifo", "tiresias"]


def test_ratios_compare_with_the_job_alone_and_are_kept_for_the_next_run(simsched, folder):
    ask = (
        "run",
        "tiny.yaml",
        "--name",
        "tiny",
        "--workers",
        "1",
        "-o",
        "finish_time_fairness={}",
        "-o",
        "seeds=1",
        "-o",
        "workload.sample=1",
    )
    simsched(*ask)
    run = read_run(folder / "results" / "tiny")
    assert [cell.summary["rho_max"] for cell in run.cells] == [1.0, 1.0]  # the only job is alone
    kept = [cell.fairness_file for cell in run.cells]
    before = [file.stat().st_mtime_ns for file in kept]
    simsched(*ask)
    assert [file.stat().st_mtime_ns for file in kept] == before


def test_fairness_does_not_make_cells_run_again(simsched):
    simsched("run", "tiny.yaml", "--workers", "1")
    assert ran(simsched("run", "tiny.yaml", "--workers", "1", "-o", "finish_time_fairness={}")) == (0, 4)


def test_published_curves_travel_with_the_run_and_a_missing_file_is_named(simsched, folder):
    (folder / "curves.csv").write_text("figure,panel,series,x,y\nover-time,gpus,fifo,1,2\n")
    simsched("run", "tiny.yaml", "--workers", "1", "-o", "report.curves=curves.csv")
    assert read_run(folder / "results" / "tiny").published_curves == (("over-time", "gpus", "fifo", 1.0, 2.0),)
    result = simsched("run", "tiny.yaml", "--workers", "1", "-o", "report.curves=none.csv")
    assert result.exit_code == 2
    assert "none.csv" in result.output


def test_a_shipped_experiment_is_found_without_its_folder():
    assert find_experiment("table2") == find_experiment("pollux/table2.yaml")
    with pytest.raises(InputError):
        find_experiment("published/figure5")
