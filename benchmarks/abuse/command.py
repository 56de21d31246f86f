"""Runs the command in a process of its own, on a small experiment."""

import contextlib
import os
import signal
import subprocess
import sys
import traceback
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TRACE = "submit_time,num_gpus,duration\n" + "".join(f"{37 * i},{1 + i % 4},{100 + 53 * i}\n" for i in range(12))


def command(*arguments: str) -> list[str]:
    """Return the command line of simsched."""
    return [sys.executable, "-c", "from simsched.cli.entry import main; main()", *arguments]


def environment(folder: Path) -> dict[str, str]:
    """Return the environment of the command, its scratch files below `folder`."""
    scratch = folder / "scratch"
    scratch.mkdir(exist_ok=True)
    paths = [str(ROOT), str(ROOT / "policies"), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "TMPDIR": str(scratch)}


def run(folder: Path, *arguments: str, seconds: float = 300) -> subprocess.CompletedProcess[str]:
    """Run the command in `folder` to its end."""
    return subprocess.run(
        command(*arguments), cwd=folder, env=environment(folder), capture_output=True, text=True,
        errors="backslashreplace", timeout=seconds, check=False,
    )  # fmt: skip


def prepared(folder: Path, name: str, experiment: str, out: str, trace: str = TRACE) -> None:
    """Run an experiment on a trace of few jobs into `out`, to begin from or to compare with."""
    (folder / "jobs.csv").write_text(trace)
    (folder / f"{name}.yaml").write_text(experiment)
    done = run(folder, "run", f"{name}.yaml", "--out", out, "-j", "1")
    if done.returncode:
        raise ValueError(done.stderr)


def here(folder: Path, *arguments: str, seconds: int = 60) -> subprocess.CompletedProcess[str]:
    """Run the command in this process, a twentieth of the work; `TooSlowError` after so many seconds of CPU.

    A traceback in its stderr tells an exception that came through.
    """
    from click.testing import CliRunner

    from simsched.cli import cli

    stopped = []

    def stop(number: int, frame: object) -> None:
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
    if stopped:  # a cell takes it for an error of its policy
        raise TooSlowError
    said = done.stderr
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        said += "".join(traceback.format_exception(done.exception))
    return subprocess.CompletedProcess(list(arguments), done.exit_code, done.stdout, said)


class TooSlowError(BaseException):
    """A command took more CPU time than it may; nothing that it calls catches it by accident."""


def tables(run_folder: Path) -> dict[str, bytes]:
    """Read the bytes of all result files but the manifests, which hold times of the clock on the wall."""
    files = [path for path in sorted((run_folder / "cells").rglob("*")) if path.is_file()]
    return {
        path.relative_to(run_folder).as_posix(): path.read_bytes() for path in files if path.name != "manifest.json"
    }
