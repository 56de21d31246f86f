"""Kernels work where nothing can be written, and that is said once."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.namespaces import inside_namespace

PROGRAM = """
import simsched.jit
from a_kernel import twice
assert twice(21) == 42
"""
KERNEL = """
from simsched.jit import jit

@jit
def once(x):
    return x

@jit
def twice(x):
    return 2 * x
"""


@pytest.mark.skipif(
    sys.platform != "linux", reason="needs user namespaces, in which even root can be kept from writing"
)
def test_kernels_are_compiled_where_no_cache_can_be_written(tmp_path):
    (tmp_path / "a_kernel.py").write_text(KERNEL)
    root = Path(__file__).resolve().parents[2]
    paths = [str(tmp_path), str(root), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "PYTHONDONTWRITEBYTECODE": "1"}
    environment.pop("SIMSCHED_NO_CACHE_SAID", None)
    environment |= {"HOME": "/proc/none", "XDG_CACHE_HOME": "/proc/none", "NUMBA_CACHE_DIR": "/proc/none"}
    read_only = f'mount --bind "{tmp_path}" "{tmp_path}" && mount -o remount,bind,ro "{tmp_path}" && exec "$@"'
    inside = inside_namespace(read_only)
    done = subprocess.run(
        [*inside, sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("no folder for numba's cache can be written") == 1
