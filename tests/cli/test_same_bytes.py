"""The same tables whatever the processor is taken for; `benchmarks/same_bytes.py` compares every policy and setting."""

from __future__ import annotations

from benchmarks import same_bytes

#: Policies that fit models, curves and plans, and one that fits nothing.
POLICIES = ["pollux", "optimus-online", "slaq", "gavel-max-min", "tiresias"]


def test_other_kernels_of_linear_algebra_and_other_instructions_change_no_byte() -> None:
    settings = ["OpenBLAS for Prescott", "numpy without AVX2"]
    assert same_bytes.compare(POLICIES, 8, settings) == {setting: [] for setting in settings}
