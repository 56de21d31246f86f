"""Finish-time fairness among the jobs of all applications but one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from simsched.results.metric_names import PARTIAL_RHO
from simsched.results.metrics import summarise_rho

if TYPE_CHECKING:
    import pandas as pd


def summarise_rho_without(rho: pd.DataFrame) -> dict[str, float]:
    """Compute the shares of rho above 1 and 2 among the jobs of all applications but one, for each of these.

    `rho` has the columns `application` and `rho`, a row a job. An application that can use one GPU only takes as long
    alone as under load, and where it makes up much of a workload the shares say little about the others.
    """
    found: dict[str, float] = {}
    for name in sorted(set(rho["application"])):
        rest = rho.loc[rho["application"] != name, "rho"]
        if len(rest):
            values = summarise_rho(rest)
            found |= {f"{metric}[all but {name}]": values[metric] for metric in PARTIAL_RHO}
    return found
