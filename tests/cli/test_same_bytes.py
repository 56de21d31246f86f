"""The same tables whatever the processor is taken for; `benchmarks/same_bytes.py` compares every policy and setting."""

from __future__ import annotations

import pytest

from benchmarks import same_bytes
from tests.campaigns import played

#: Policies that fit models, curves and plans, and one that fits nothing.
POLICIES = played(
    ["pollux", "optimus-online", "slaq", "gavel-max-min", "tiresias"], ["pollux", "optimus-online", "gavel-max-min"]
)
#: What takes libraries and instructions for others.
OTHERS = ("OpenBLAS for Prescott", "numpy without AVX2")


def test_other_kernels_of_linear_algebra_and_other_instructions_change_no_byte(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    both = {key: value for setting in OTHERS for key, value in same_bytes.SETTINGS[setting].items()}
    monkeypatch.setitem(same_bytes.SETTINGS, "both", both)
    assert same_bytes.compare([*POLICIES], 8, ["both"]) == {"both": []}
