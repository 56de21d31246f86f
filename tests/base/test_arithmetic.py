"""Arithmetic that is the same everywhere, and kernels where nothing can be written."""

import math
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import simsched.jit
from simsched import arithmetic, kernels
from tests.namespaces import inside_namespace

RNG = np.random.default_rng(3)
POSITIVE = np.concatenate([RNG.lognormal(0, 30, 3000), RNG.uniform(0.5, 2.0, 3000), [5e-324, 1e-310, 1.0, 1.7e308]])
EXPONENTS = np.concatenate([RNG.uniform(-745, 709.7, 3000), RNG.uniform(-1, 1, 3000), [0.0, -0.0, 709.78, -745.1]])


def units_apart(found, true):
    """How many units in the last place numbers are apart."""
    return np.abs(np.asarray(found) - true) / np.spacing(np.abs(true))


def test_logarithms_and_exponentials_are_those_of_the_c_library_to_a_unit_in_the_last_place():
    assert units_apart(arithmetic.log(POSITIVE), np.array([math.log(x) for x in POSITIVE])).max() <= 1
    assert units_apart(arithmetic.exp(EXPONENTS), np.array([math.exp(x) for x in EXPONENTS])).max() <= 1


def test_arrays_single_numbers_and_compiled_kernels_agree_to_the_bit():
    for name, given in (("log", POSITIVE), ("exp", EXPONENTS)):
        array, compiled = getattr(arithmetic, name), getattr(kernels, name)
        assert [array(x) for x in given.tolist()] == array(given).tolist()
        assert [compiled(x) for x in given] == array(given).tolist()


def test_powers_and_products():
    assert arithmetic.power([0.0, 1.0, 4.0], 0.5) == pytest.approx([0.0, 1.0, 2.0], rel=1e-15)
    assert arithmetic.power(3.0, 1) == 3.0
    assert arithmetic.power(3.0, 0) == 1.0
    assert arithmetic.dot([1.0, 2.0], [3.0, 4.0]) == 11.0
    assert arithmetic.times([[1.0, 2.0], [0.0, 1.0]], [3.0, 4.0]).tolist() == [11.0, 4.0]


def test_the_ends_of_the_range():
    assert arithmetic.log([0.0, np.inf]).tolist() == [-np.inf, np.inf]
    assert np.isnan(arithmetic.log([-1.0, np.nan])).all()
    assert arithmetic.exp([-np.inf, -800.0, 0.0, 710.0, np.inf]).tolist() == [0.0, 0.0, 1.0, np.inf, np.inf]
    assert np.isnan(arithmetic.exp(np.nan))
    assert arithmetic.log(math.e) == pytest.approx(1.0)


def test_an_ordered_sum_rounds_each_step_under_every_python() -> None:
    assert arithmetic.ordered_sum([1e16, 1.0, -1e16]) == 0.0
    assert arithmetic.ordered_sum([]) == 0.0


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
