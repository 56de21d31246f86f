"""Integrals over time of what the table of rounds says."""

from __future__ import annotations

import numpy as np
import pandas as pd


def integral(rounds: pd.DataFrame, column: str, until_s: int) -> int:
    """Integrate a whole-numbered column of the table of rounds from second 0 to `until_s`.

    A value holds from its decision to the next one, the first from second 0 on; of several decisions in one second the
    last counts. 0 where there is no decision. The unit is that of the column times seconds.
    """
    if rounds.empty:
        return 0
    times = np.minimum(rounds["time_s"].to_numpy(dtype=np.int64), until_s)
    times[0] = 0
    seconds = np.diff(times, append=np.int64(until_s))
    return int(seconds @ rounds[column].to_numpy(dtype=np.int64))
