"""What every test runs with: invariants on, and the folder of published data if it is there."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Iterator
from functools import lru_cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from simsched.api import checking
from simsched.experiment.published import find_published
from simsched.experiment.running import prepared, reproduce, runner, worker
from simsched.threads import one_thread_each
from simsched.workload import source
from tests.campaigns import WHOLE

os.environ["SIMSCHED_CHECK_INVARIANTS"] = "1"
one_thread_each()
# What one process of the tests compiles, the modules and its own asserts, the others read; as they do with kernels.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
# Of what tests leave behind little is garbage, and a pass at every 700 new objects takes an eighth of their time.
gc.set_threshold(50_000, *gc.get_threshold()[1:])
# Processes that check experiments need both: the fork server of the tests loads them for all of its processes.
worker._LOADED = (*worker._LOADED, prepared.__name__, "pandas")
# On a busy machine a pause in the middle of an example is nobody's fault.
settings.register_profile(
    "simsched", deadline=None, suppress_health_check=[HealthCheck.too_slow], max_examples=100 if WHOLE else 30
)
settings.load_profile("simsched")
if not WHOLE and find_spec(_PROVIDERS := "hypothesis.internal.conjecture.providers"):
    # Newer versions of Hypothesis parse every module, in every process of the tests, for constants that they may try.
    providers = import_module(_PROVIDERS)
    if hasattr(providers, "_get_local_constants"):
        providers._get_local_constants = lambda: providers._local_constants

ROOT = Path(__file__).resolve().parent.parent
#: Where `python docs/data.py get --dir` put the published data.
SHARED = Path(os.environ.get("SIMSCHED_DATA", ROOT.parent / "shared" / "data"))


class PublishedFolder:
    """The folder of published data: `folder / "NAME"`, or the test is skipped where data NAME are not all there."""

    def __truediv__(self, path: str) -> Path:
        data = find_published(path.partition("/")[0])
        folder = SHARED / data.name
        gone = [file.path for file in data.files if file.sha256 and not (folder / file.path).is_file()]
        if gone or not folder.is_dir():
            pytest.skip(f"needs {folder / (gone or [''])[0]} (the folder is $SIMSCHED_DATA): {data.remedy()}")
        return SHARED / path


@pytest.fixture(scope="session")
def shared() -> PublishedFolder:
    """Return the folder of published data, of which each part that is not there skips the test that asks for it."""
    return PublishedFolder()


@pytest.fixture(scope="session", autouse=True)
def years() -> Iterator[None]:
    """Keep the generated years that one test drew from for the next one, which mostly wants the same."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("simsched.workload.source.stretch_of", lru_cache(maxsize=4)(source.stretch_of))
        yield


@pytest.fixture(scope="module")
def in_this_process() -> Iterator[None]:
    """Check experiments and run cells in this process: for tests of what comes out, not of processes."""
    with pytest.MonkeyPatch.context() as patch:
        for module in (checking, prepared, reproduce):
            patch.setattr(module, "apart_if_foreign", lambda *_, **__: None)
        patch.setattr(
            runner,
            "run_in_pool",
            lambda missing, folder, _, listener, limits: runner._run_here(missing, folder, listener, limits),
        )
        yield


#: The files that take longest: begun first, so that no process is left with one of them at the end.
_LONGEST = (
    "tests/cli/test_operators_page.py",
    "tests/cli/test_hostile.py",
    "tests/cli/test_documents.py",
    "tests/cli/test_resume.py",
    "tests/cli/test_same_bytes.py",
    "tests/conformance/test_policies.py",
    "tests/validation/test_fragmentation.py",
    "tests/validation/test_gavel_oracle.py",
    "tests/validation/test_muri.py",
    "tests/validation/test_muri_oracle.py",
    "tests/validation/test_pollux_directions.py",
    "tests/validation/test_shockwave_oracle.py",
    "tests/validation/test_slurm_cluster.py",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the tests of the longest files first."""
    place = {file: number for number, file in enumerate(_LONGEST)}
    items.sort(key=lambda item: place.get(item.nodeid.partition("::")[0], len(place)))
