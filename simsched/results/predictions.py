"""The accuracy of the predictions that a policy stored with its results."""

from __future__ import annotations

import numpy as np
import pandas as pd

from simsched.results.reader import Cell
from simsched.results.sheets import read_sheet

PREDICTIONS_FILE = "predictions.csv"
COLUMNS = ("time_s", "job_id", "progress", "end", "gpus", "step_s")
_LIFE = ("job_id", "start_s", "end_s", "progress", "rate", "gpus", "batch_size", "throughput")


def has_predictions(cell: Cell) -> bool:
    """Return whether a cell holds predictions."""
    return (cell.folder / PREDICTIONS_FILE).is_file()


def prediction_errors(cell: Cell) -> pd.DataFrame:
    """Return the errors of a cell's predictions, in order.

    Columns: `job_id`, `application`, `done` (share of the training done at the time), `end_error` (of the progress at
    completion), `gpus` (given), `step_error` (of the seconds of a step on these; NaN if the job never ran on them).
    Errors are relative to the truth. Raises `InputError` for a damaged file.
    """
    told = read_sheet(cell.folder / PREDICTIONS_FILE, COLUMNS)
    held = cell.table("allocations", _LIFE)
    made = held["progress"] + held["rate"] * (held["end_s"] - held["start_s"])
    whole = made.groupby(held["job_id"]).max()
    running = held[held["throughput"] > 0]
    steps = (running["batch_size"] / running["throughput"]).groupby([running["job_id"], running["gpus"]]).mean()
    jobs = cell.table("jobs", ["job_id", "application"]).set_index("job_id")["application"]
    told = told[told["job_id"].isin(jobs.index)].reset_index(drop=True)
    true_end = told["job_id"].map(whole)
    true_step = steps.reindex(pd.MultiIndex.from_frame(told[["job_id", "gpus"]])).to_numpy()
    return pd.DataFrame(
        {
            "job_id": told["job_id"],
            "application": told["job_id"].map(jobs),
            "done": told["progress"] / true_end,
            "end_error": told["end"] / true_end - 1,
            "gpus": told["gpus"],
            "step_error": np.where(told["step_s"] > 0, told["step_s"] / true_step - 1, np.nan),
        }
    )
