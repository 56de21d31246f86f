"""How much of the long campaigns is played: a cross-section, or with `SIMSCHED_TESTS=whole` all of it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TypeVar

import pytest

WHOLE = os.environ.get("SIMSCHED_TESTS") == "whole"
Case = TypeVar("Case")
#: Marks tests of seconds whose subject quicker ones hold too.
long = pytest.mark.skipif(not WHOLE, reason="takes long: SIMSCHED_TESTS=whole plays it")


def played(whole: Sequence[Case], cross_section: Sequence[Case]) -> Sequence[Case]:
    """Return the cases that are played; those of the cross-section are among the whole."""
    assert all(case in whole for case in cross_section)
    return whole if WHOLE else cross_section
