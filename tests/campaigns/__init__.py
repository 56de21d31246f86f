"""How much of the long campaigns is played: a cross-section, or with `SIMSCHED_TESTS=whole` all of it.

The modules of this package attack simsched at random; `SIMSCHED_TRIES=N` makes N tries of each attack, and
`python -m tests.campaigns` writes the table of a campaign.
"""

from __future__ import annotations

import os
import random
import sys
from collections.abc import Sequence
from typing import TypeVar

import pytest

WHOLE = os.environ.get("SIMSCHED_TESTS") == "whole"
Case = TypeVar("Case")
#: Marks tests of seconds whose subject quicker ones hold too.
long = pytest.mark.skipif(not WHOLE, reason="takes long: SIMSCHED_TESTS=whole plays it")

#: Marks attacks that take minutes, which only a campaign makes.
campaign = pytest.mark.skipif("SIMSCHED_TRIES" not in os.environ, reason="python -m tests.campaigns plays it")


def played(whole: Sequence[Case], cross_section: Sequence[Case]) -> Sequence[Case]:
    """Return the cases that are played; those of the cross-section are among the whole."""
    assert all(case in whole for case in cross_section)
    return whole if WHOLE else cross_section


def tries(few: int, whole: int):
    """Give a test `chance`, a generator of random numbers, for each try; the number of the try is its seed and id."""
    count = int(os.environ.get("SIMSCHED_TRIES", whole if WHOLE else few))
    skipped = pytest.mark.skipif(sys.platform != "linux", reason="campaigns use Linux's signals and limits")
    each = pytest.mark.parametrize("chance", [random.Random(number) for number in range(count)], ids=range(count))
    return lambda test: each(skipped(test))
