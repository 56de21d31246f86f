"""Kernels work where nothing can be written, and that is said once."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import simsched.jit
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


def test_a_kept_kernel_is_known_by_the_arrays_it_reads_and_the_fields_of_its_arguments():
    def made_from(reads: str, fields: str) -> str:
        names: dict[str, object] = {}
        text = f"""
from typing import NamedTuple
import numpy as np
TABLE = np.array({reads})
class Given(NamedTuple):
    {fields}
def kernel(given: Given) -> int:
    return TABLE[given.a]
"""
        exec(text, names)
        return simsched.jit._made_from(names["kernel"])

    usual = made_from("[1, 2]", "a: int; b: int")
    assert usual == made_from("[1, 2]", "a: int; b: int")
    assert len({usual, made_from("[1, 3]", "a: int; b: int"), made_from("[1, 2]", "b: int; a: int")}) == 3
