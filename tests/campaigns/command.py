"""Runs the command for campaigns, and says what is wrong with its end."""

import contextlib
import json
import math
import os
import signal
import subprocess
import sys
import traceback
from pathlib import Path

from click.testing import CliRunner

from simsched.cli.main import cli

ROOT = Path(__file__).resolve().parents[2]
TRACE = "submit_time,num_gpus,duration\n" + "".join(f"{37 * i},{1 + i % 4},{100 + 53 * i}\n" for i in range(12))
LONGEST_S = 30
COMMAND = (sys.executable, "-c", "from simsched.cli.entry import main; main()")


class TooSlowError(BaseException):
    """A command exceeded its CPU time; nothing that it calls catches this error by accident."""


def here(folder, *arguments, seconds=LONGEST_S):
    """Run the command in this process; `TooSlowError` after this many seconds of CPU.

    A traceback in its stderr indicates an unhandled exception.
    """
    stopped = []

    def stop(number, frame):
        stopped.append(number)
        raise TooSlowError

    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        with contextlib.chdir(folder):
            done = CliRunner().invoke(cli, list(arguments), prog_name="simsched")
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
    if stopped:  # a cell treats it as an error of its policy
        raise TooSlowError
    stderr = done.stderr
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        stderr += "".join(traceback.format_exception(done.exception))
    return subprocess.CompletedProcess(arguments, done.exit_code, done.stdout, stderr)


def environment(folder):
    """Return the environment of a process of its own, its scratch files below `folder`."""
    scratch = folder / "scratch"
    scratch.mkdir(exist_ok=True)
    paths = [str(ROOT), str(ROOT / "policies"), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "TMPDIR": str(scratch), "MPLCONFIGDIR": str(folder)}


def run(folder, *arguments, seconds=300):
    """Run the command in a process of its own to its end."""
    return subprocess.run(
        [*COMMAND, *arguments], cwd=folder, env=environment(folder), capture_output=True, text=True,
        errors="backslashreplace", timeout=seconds, check=False,
    )  # fmt: skip


def ended_well(done, case=""):
    """Assert that a command ended with a known code, a message where it failed, no traceback, and proper JSON."""
    assert "Traceback" not in done.stderr, (case, done.stderr[-900:])
    assert "internal error" not in done.stderr, (case, done.stderr[-900:])
    assert done.returncode in (0, 1, 2), (case, done.returncode)
    assert done.returncode == 0 or (done.stderr + done.stdout).strip(), (case, "refused without a word")
    if "--json" in done.args and done.stdout:
        json.loads(done.stdout, parse_constant=_refuse, parse_float=_finite)
    return done


def _refuse(name):
    raise ValueError(f"{name} is not JSON")


def _finite(number):
    assert math.isfinite(float(number)), number
    return float(number)


def prepared(folder, name, experiment, trace=TRACE):
    """Run an experiment on a small trace into `whole`, as a starting point or reference."""
    (folder / "jobs.csv").write_text(trace)
    (folder / f"{name}.yaml").write_text(experiment)
    done = here(folder, "run", f"{name}.yaml", "--out", "whole", "--in-process", "--no-plots")
    assert done.returncode == 0, done.stderr
    return folder / "whole" / name


def tables(run_folder):
    """Read the bytes of all result files except the manifests, which contain wall-clock times."""
    files = [path for path in sorted((run_folder / "cells").rglob("*")) if path.is_file()]
    return {
        path.relative_to(run_folder).as_posix(): path.read_bytes() for path in files if path.name != "manifest.json"
    }
