"""The quickstart as a container may run it: an unprivileged user without a home, and an install that is read-only."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.namespaces import inside_namespace

ROOT = Path(__file__).resolve().parents[2]
#: Makes every folder but the last read-only, then runs a command in the last as a user who has no name and no rights.
SCRIPT = """
for folder in "$@"; do
    case "$folder" in --) break ;; esac
    mount --bind "$folder" "$folder" && mount -o remount,bind,ro "$folder" || exit 77
done
while [ "$1" != -- ]; do shift; done; shift
exec unshare -U --map-user=12345 --map-group=12345 -- "$@"
"""
PROGRAM = """
import os, pathlib, sys
assert os.getuid() == 12345
for folder in sys.argv[1].split(os.pathsep):
    assert not os.access(folder, os.W_OK), folder
try:
    home = pathlib.Path.home()
except RuntimeError:
    home = None
assert home is None or not os.access(home, os.W_OK), home
sys.argv = ["simsched", *sys.argv[2:]]
from simsched.cli.main import main
sys.exit(main())
"""


def as_nobody(folders, command, **options):
    """Run a command as an unprivileged user to whom some folders are read-only; skips where that is not possible."""
    inside = inside_namespace(SCRIPT, *folders, "--")
    return subprocess.run([*inside, *command], capture_output=True, text=True, check=False, **options)


@pytest.mark.skipif(sys.platform != "linux", reason="needs user namespaces")
def test_an_unprivileged_user_without_a_home_runs_the_quickstart(tmp_path):
    install = [ROOT, Path(sys.prefix)]
    environment = {"PATH": os.environ["PATH"], "HOME": "/proc/none", "TMPDIR": str(tmp_path)}
    environment |= {name: os.environ[name] for name in ("PYTHONPATH",) if name in os.environ}
    paths = os.pathsep.join(map(str, install))
    small = ["-o", "seeds=1", "-o", "workload.jobs=6", "--policy", "tiresias", "--workers", "1"]
    small += ["-o", "report.plots=false"]
    command = [sys.executable, "-c", PROGRAM, paths, "run", "quickstart", *small]
    done = as_nobody(install, command, cwd=tmp_path, env=environment)
    assert done.returncode == 0, done.stderr
    assert "What was run: 6 jobs, 1 seed" in done.stdout
    [run] = (tmp_path / "results").iterdir()
    assert {path.name for path in (run / "cells").glob("*/*")} >= {"jobs.parquet", "manifest.json"}
