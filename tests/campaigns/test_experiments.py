"""Experiments drawn from the whole schema, changed in a value, and traces that say more than is used."""

import contextlib
import copy
import csv
import io
import json
import math
import shutil
import signal
import traceback

import pytest
import yaml
from click.testing import CliRunner

import simsched as sim
from simsched.engine import EngineError
from simsched.errors import InputError
from simsched.results import read_run
from tests.campaigns import tries
from tests.campaigns.command import LONGEST_S, TooSlowError, ended_well, here, run, tables
from tests.campaigns.drawn import FILES, ODD, experiment, places, value

#: A run that is given up without progress, such as one whose rounds are shorter than its restarts.
GIVEN_UP = "so that the run would not end"
RUN = ("run", "fuzz.yaml", "--in-process", "--json", "--out")


@pytest.fixture
def folder(tmp_path):
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    return tmp_path


def written(folder, content):
    text = yaml.safe_dump(content, allow_unicode=True, sort_keys=False)
    (folder / "fuzz.yaml").write_text(text, encoding="utf-8")
    return json.dumps(yaml.safe_load(text))


@tries(8, 30)
def test_an_experiment_is_valid_and_runs_or_is_refused_with_a_message(folder, chance):
    case = written(folder, experiment(chance))
    validated = ended_well(here(folder, "validate", "fuzz.yaml"), case)
    try:
        done = ended_well(here(folder, *RUN, "out"), case)
    except TooSlowError:  # the limit of each cell must end what is slow
        limited = ("run", "fuzz.yaml", "--out", "limited", "-j", "1", "--timeout-per-cell", "2", "--json")
        ended_well(run(folder, *limited, seconds=3 * LONGEST_S), case)
        return
    if not (done.returncode == 1 and validated.returncode == 0 and GIVEN_UP in done.stderr):
        assert done.returncode == validated.returncode, (case, done.stderr[-300:])


def reused(folder, out):
    """Run the experiment and return how many cells were reused; None if it fails."""
    done = here(folder, *RUN, out, seconds=8)
    return None if done.returncode else json.loads(done.stdout)["cells"]["reused"]


@tries(1, 3)
def test_a_cell_is_reused_only_if_a_fresh_one_has_the_same_bytes(folder, chance):
    try:
        for _ in range(12):
            shutil.rmtree(folder / "shared", ignore_errors=True)
            first = experiment(chance, odd=False)
            case = written(folder, first)
            if reused(folder, "shared") is not None:
                break
        else:
            pytest.skip("no valid experiment was drawn")
        second, change = changed(folder, first, chance)
        written(folder, second)
        fresh, shared = reused(folder, "fresh"), reused(folder, "shared")
    except TooSlowError:
        pytest.skip("took too long to compare")
    assert (fresh is None) == (shared is None), (case, change)
    if fresh is not None:
        mine, theirs = tables(folder / "fresh/fuzz"), tables(folder / "shared/fuzz")
        assert [path for path, content in mine.items() if theirs.get(path) != content] == [], (case, change)


def changed(folder, first, chance):
    """Change one value of an experiment, or one cell of a file that it reads."""
    second = copy.deepcopy(first)
    if chance.random() < 0.2:
        path = folder / chance.choice(("jobs.csv", "tenants.csv", "list.csv", "outages.csv"))
        rows = [line.split(",") for line in path.read_text().splitlines()]
        row = chance.choice(rows[1:])
        column = chance.choice([place for place, cell in enumerate(row) if cell.isdigit()])
        row[column] = str(int(row[column]) + 1)
        path.write_text("\n".join(map(",".join, rows)) + "\n")
        return second, f"{path.name}: {row}"
    sections = ("cluster", "engine", "failures", "workload", "policies", "seeds", "tenants", "applications")
    *way, last = chance.choice([place for place in places(second) if place[0] in sections])
    holder = second
    for key in way:
        holder = holder[key]
    before = holder[last]
    if isinstance(before, bool):
        holder[last] = not before
    elif isinstance(before, int | float):
        holder[last] = before + chance.choice((1, 2)) if isinstance(before, int) else before * 0.5
    elif before in ("t4", "v100"):
        holder[last] = value(chance, {"type": "string"}, {}, "gpu_type")
    return second, f"{way} {last} = {holder[last]!r}"


UNSAID = """\
name: unsaid
cluster: {{nodes: 4, gpus_per_node: 4}}
workload: {{path: trace.csv, recipe: {recipe}{counts}}}
engine: {{restart_delay_s: 0}}
policies: [{{name: fifo}}]
report: {{plots: false}}
"""


def with_applications(chance):
    durations = [chance.randint(10, 900) for _ in range(chance.randint(1, 5))]
    names = ("cifar10", "ncf", "bert", "imagenet")
    return "application", [(60 * i, chance.choice((1, 2)), s, chance.choice(names)) for i, s in enumerate(durations)]


def with_mixed_clocks(chance):
    ends = ["", *chance.choices(["+01:00", "Z", "-05:30"], k=3)]
    rows = [(f"2024-03-01T0{i}:30:00{end}", 1, 100) for i, end in enumerate(ends)]
    return "", chance.sample(rows, len(rows))


def with_unknown_column(chance):
    names = ("wall_limit", "deadline", "Tenant", "duration_h", "memory")
    return chance.choice(names), [(i, 1, 100 + i, chance.randint(1, 9)) for i in range(3)]


def with_doubled_column(chance):
    names = ("duration", "num_gpus", "submit_time")
    return chance.choice(names), [(i, 1, 100 + i, chance.randint(1, 4)) for i in range(3)]


@tries(3, 20)
def test_what_a_trace_says_is_used_or_the_user_is_told(tmp_path, chance):
    way = chance.choice((with_applications, with_mixed_clocks, with_unknown_column, with_doubled_column))
    column, rows = way(chance)
    durations = sorted(float(row[2]) for row in rows) if way is with_applications else []
    text = io.StringIO()
    csv.writer(text).writerows([("submit_time", "num_gpus", "duration", *filter(None, [column])), *rows])
    (tmp_path / "trace.csv").write_text(text.getvalue())
    recipe = chance.choice(("replay", "as-is")) if durations else "replay"
    counts = ", runtime_from: duration" if durations and chance.random() < 0.5 else ""
    (tmp_path / "unsaid.yaml").write_text(UNSAID.format(recipe=recipe, counts=counts))
    done = ended_well(here(tmp_path, "run", "unsaid.yaml", "--in-process", "--json"), text.getvalue())
    if done.returncode == 0 and not done.stderr.strip():
        jobs = read_run(tmp_path / "results/unsaid").cells[0].jobs
        assert durations, (text.getvalue(), recipe)
        assert sorted(jobs["end_time_s"] - jobs["start_time_s"]) == durations, (text.getvalue(), recipe)


POLICIES = ("fifo", "las", "srtf", "tiresias", "sjf", "smallest-first", "time-slicing", "pollux")
ODD_ARGUMENTS = (*ODD, object, b"1", (1,), 1j, "\ud800", (0, 4), (2, 2.0), {"nodes": 1.5, "gpus_per_node": 4})


@tries(5, 40)
def test_a_call_simulates_or_raises_an_error_of_simscheds(chance):
    jobs = [{"num_gpus": 1 + i % 4, "submit_time_s": 10 * i, "duration_s": 60 + i} for i in range(chance.randint(1, 6))]
    if chance.random() < 0.4:
        jobs[0] = {"num_gpus": 1, "submit_time_s": 0, "application": "cifar10", "batch_size": 128}
    call = {"jobs": jobs, "policy": chance.choice(POLICIES), "cluster": (2, 4), "restart_delay_s": 5}
    for _ in range(chance.choice((0, 1, 1, 2))):
        holder, keys = call, (*call, "seed", "interference", "tick_s", "applications")
        if chance.random() < 0.6:
            holder = chance.choice(jobs)
            keys = (*holder, "tenant", "application", "batch_size", "deadline_s", "time_limit_s", "id", "surprise")
        holder[chance.choice(keys)] = chance.choice(ODD_ARGUMENTS)
    try:
        metrics = sim.simulate(**call).metrics
    except (InputError, EngineError):
        return
    except Exception:  # noqa: BLE001 - whatever else is raised is what the campaign looks for
        pytest.fail(f"{call!r}: {traceback.format_exc()[-500:]}")
    assert all(map(math.isfinite, metrics.values())), call


def test_a_stop_that_a_cell_takes_for_its_policys_error_counts_as_too_slow(tmp_path, monkeypatch):
    def swallow(*_, **__):
        with contextlib.suppress(TooSlowError):
            signal.raise_signal(signal.SIGPROF)

    monkeypatch.setattr(CliRunner, "invoke", swallow)
    with pytest.raises(TooSlowError):
        here(tmp_path, "run", "fuzz.yaml")
