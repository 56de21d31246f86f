"""Small trace files, and what is said about them."""

import pytest

from simsched.errors import InputError
from simsched.workload.readers import read_trace


def write(folder, name, text):
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def problems_of(path, layout="auto"):
    with pytest.raises(InputError) as caught:
        read_trace(path, layout)
    return [str(problem) for problem in caught.value.problems]
