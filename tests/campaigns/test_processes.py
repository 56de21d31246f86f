"""Runs that are killed or whose disk is full are finished by the next one; odd names do no harm where they stand."""

import csv
import io
import os
import shutil
import signal
import subprocess
import sys
import time

import pytest
import yaml

from tests.campaigns import long, tries
from tests.campaigns.command import COMMAND, ended_well, environment, here, prepared, tables

EXPERIMENT = """\
name: sweep
cluster: {nodes: 2, gpus_per_node: 4}
workload: {path: jobs.csv, recipe: replay}
policies: [{name: fifo}, {name: tiresias, params: {interval_s: 1}}, {name: las}]
seeds: 3
report: {plots: false}
"""
#: A limit on the size of files emulates a full disk: `write` fails in the same way except for its errno.
FULL = """\
import resource, signal, sys
from simsched.cli.entry import main
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
size = int(sys.argv.pop(1))
resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
main()
"""
WAYS = ([signal.SIGKILL], [signal.SIGTERM], [signal.SIGHUP], [signal.SIGINT], [signal.SIGINT, signal.SIGINT])


@pytest.fixture(scope="module")
def swept(tmp_path_factory):
    """Run the sweep undisturbed."""
    return prepared(tmp_path_factory.mktemp("swept"), "sweep", EXPERIMENT)


def finished(folder, swept):
    """Run the sweep again, and compare its tables with those of the undisturbed one."""
    again = here(folder, "run", "sweep.yaml", "--out", "out", "--in-process", "--no-plots")
    assert again.returncode == 0, again.stderr
    assert tables(folder / "out/sweep") == tables(swept)


@long
@tries(0, 2)
def test_a_sweep_stopped_at_any_moment_is_finished_with_the_same_bytes(swept, chance):
    folder = swept.parents[1]
    for left in ("out", "scratch"):  # of a try that was killed
        shutil.rmtree(folder / left, ignore_errors=True)
    process = subprocess.Popen(
        [*COMMAND, "run", "sweep.yaml", "--out", "out", "--workers", "2"], cwd=folder, env=environment(folder),
        start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )  # fmt: skip
    time.sleep(chance.uniform(0, 5))
    way = chance.choice(WAYS)
    for number in way:
        if process.poll() is None:
            os.killpg(process.pid, number)
            time.sleep(0.1)
    assert "Traceback" not in process.communicate(timeout=60)[1]
    assert signal.SIGKILL in way or not list((folder / "scratch").iterdir())
    finished(folder, swept)


@long
@tries(0, 2)
def test_a_full_disk_is_told_and_the_next_run_mends_it(swept, chance):
    folder = swept.parents[1]
    shutil.rmtree(folder / "out", ignore_errors=True)
    size = int(10 ** chance.uniform(0, 5.3))
    running = ("run", "sweep.yaml", "--out", "out", "--in-process")
    arguments = chance.choice((running, ("report", "out/sweep"), ("plot", "out/sweep")))
    if arguments is not running:
        shutil.copytree(swept, folder / "out/sweep")
    command = [sys.executable, "-c", FULL, str(size), *arguments]
    done = subprocess.run(
        command, cwd=folder, env=environment(folder), capture_output=True, text=True, timeout=120, check=False
    )
    ended_well(done, (size, arguments))
    assert done.returncode == 0 or any(word in done.stderr for word in ("too large", "written", "disk")), done.stderr
    if arguments is not running:
        assert tables(folder / "out/sweep") == tables(swept)
    finished(folder, swept)


NAMES = (
    "sjf ($x_$)", "$\\frac{", "a_b^c", "\\", "%", "=1+1", "+1", "-1", "@SUM(A1)", "<script>alert(1)</script>", "</svg>",
    "&amp;", "|", "`", "*b*", "[a](javascript:b)", "\x1b[2Ja", "\x07", "a\tb", "a\nb", "a\rb", "\u202eabc", "\u200b",
    "\u2028", "日本語", "العربية", "é" * 60, "a" * 3000, "🙂", "../../x", "/dev/null", "con", ".", "..", " ", "a b",
    "'", '"', "{}", "{0}", "%s", "None", "nan", "true", "1", "1e5", "\x00", "\ufeff", "<!--", "-->", "]]>", ",", ";",
    "#", "a,b", "#N/A",
)  # fmt: skip
SHOWN = [("show", *more) for more in ((), ("--by", "tenant"), ("--markdown",), ("--csv",), ("--json",))]
SHOWN += [("compare",), ("report",), ("plot",)]


@tries(1, 3)
def test_odd_labels_jobs_and_tenants_do_no_harm_where_they_are_shown(tmp_path, chance):
    with (tmp_path / "jobs.csv").open("w", encoding="utf-8", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(("job_id", "submit_time", "num_gpus", "duration", "tenant", "user"))
        for i in range(8):
            odd = chance.choices(NAMES, k=3)
            rows.writerow((f"{i}{odd[0]}", 40 * i, 1 + i % 3, 90 + i, *odd[1:]))
    labels = chance.sample(NAMES, 2)
    content = {
        "name": "names", "cluster": {"nodes": 2, "gpus_per_node": 4}, "description": chance.choice(NAMES),
        "workload": {"path": "jobs.csv", "recipe": "replay"}, "report": {"plots": chance.random() < 0.3},
        "policies": [{"name": name, "label": label} for name, label in zip(("fifo", "las"), labels, strict=True)],
    }  # fmt: skip
    (tmp_path / "names.yaml").write_text(yaml.safe_dump(content), encoding="utf-8")
    ran = ended_well(here(tmp_path, "run", "names.yaml", "--in-process", seconds=120), labels)
    shown = [(name, "results/names", *more) for name, *more in chance.sample(SHOWN, 4)] if ran.returncode == 0 else []
    for done in (ran, *(ended_well(here(tmp_path, *arguments, seconds=120), labels) for arguments in shown)):
        assert not set("\x1b\x07\x00\u202e") & set(done.stdout + done.stderr), (labels, done.args)
        if "--csv" in done.args:
            cells = [cell for row in csv.reader(io.StringIO(done.stdout)) for cell in row]
            assert not [cell for cell in cells if cell.startswith(("=", "@"))], labels
        assert "--markdown" not in done.args or "<script>" not in done.stdout, labels
    pages = (tmp_path / "results/names").rglob("*.html")
    assert not [page for page in pages if "<script>alert" in page.read_text(encoding="utf-8")], labels
