"""Runs the command in a process of its own, on a small experiment."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TRACE = "submit_time,num_gpus,duration\n" + "".join(f"{37 * i},{1 + i % 4},{100 + 53 * i}\n" for i in range(12))


def command(*arguments: str) -> list[str]:
    """Return the command line of simsched."""
    return [sys.executable, "-c", "from simsched.cli.main import main; main()", *arguments]


def environment(folder: Path) -> dict[str, str]:
    """Return the environment of the command, its scratch files below `folder`."""
    scratch = folder / "scratch"
    scratch.mkdir(exist_ok=True)
    paths = [str(ROOT), str(ROOT / "policies"), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "TMPDIR": str(scratch)}


def run(folder: Path, *arguments: str, seconds: float = 300) -> subprocess.CompletedProcess[str]:
    """Run the command in `folder` to its end."""
    return subprocess.run(
        command(*arguments), cwd=folder, env=environment(folder), capture_output=True, text=True, timeout=seconds,
        check=False,
    )  # fmt: skip


def tables(run_folder: Path) -> dict[str, bytes]:
    """Read the bytes of all result files but the manifests, which hold times of the clock on the wall."""
    files = [path for path in sorted((run_folder / "cells").rglob("*")) if path.is_file()]
    return {
        path.relative_to(run_folder).as_posix(): path.read_bytes() for path in files if path.name != "manifest.json"
    }
