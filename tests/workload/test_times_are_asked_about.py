"""Times that may mean two things are refused with their line and what they may mean."""

import pytest

from simsched.workload.readers import read_trace
from tests.trace_files import problems_of, write

PLAIN = "submit_time,num_gpus,duration\n"
KUBERNETES = "name,namespace,gpus,created,started,finished,phase\n"


@pytest.mark.parametrize(
    ("unit", "parts", "said"),
    [
        ("milliseconds", "1,000", "1714953600000"),
        ("microseconds", "1,000,000", "1714953600000000"),
        ("nanoseconds", "1,000,000,000", "1714953600000000000"),
    ],
)
def test_times_since_1970_in_parts_of_a_second(tmp_path, unit, parts, said):
    expected = (
        f":3: the time '{said}' looks like {unit} since 1970; "
        f"are they? then divide the times by {parts}, or write timestamps"
    )
    path = write(tmp_path, "mine.csv", f"{PLAIN}7,1,60\n{said},1,60\n")
    assert problems_of(path) == [f"{path}{expected}"]
    path = write(tmp_path, "pods.csv", f"{KUBERNETES}a,x,1,7,8,9,Succeeded\nb,x,1,{said},{said},{said},Succeeded\n")
    assert problems_of(path) == [f"{path}{expected}"]


@pytest.mark.parametrize(
    ("said", "either"),
    [
        ("05/06/2024 10:00:00", "2024-05-06 or 2024-06-05"),
        ("5.6.2024", "2024-05-06 or 2024-06-05"),
        ("05/05/2024", "2024-05-05"),
        ("25/06/2024", "2024-06-25"),
        ("06/25/2024", "2024-06-25"),
        ("25/25/2024", "year-month-day"),
    ],
)
def test_dates_that_do_not_begin_with_their_year(tmp_path, said, either):
    path = write(tmp_path, "mine.csv", f"{PLAIN}{said},1,60\n")
    message = f"the time '{said}' does not begin with its year, so that day and month may be confused"
    assert problems_of(path) == [f"{path}:2: {message}; write it as {either}"]
    row = f"b,x,1,{said},{said},{said},Succeeded\n"
    path = write(tmp_path, "pods.csv", f"{KUBERNETES}a,x,1,2024-05-06,2024-05-06,2024-05-07,Succeeded\n{row}")
    assert problems_of(path) == [f"{path}:3: {message}; write it as {either}"]


@pytest.mark.parametrize("said", ["1714953600", "2024/05/06", "2024-05-06", "12.5"])
def test_times_that_mean_one_thing_are_read(tmp_path, said):
    assert len(read_trace(write(tmp_path, "mine.csv", f"{PLAIN}{said},1,60\n"))) == 1


def test_a_number_that_is_no_time_in_any_unit_is_still_too_large(tmp_path):
    path = write(tmp_path, "mine.csv", f"{PLAIN}30000000000,1,60\n")
    assert problems_of(path) == [f"{path}:2: column 'submit_time': '30000000000' is above 1e+10; {MEND}"]


MEND = "correct the line, or leave it out"
