import json
import shutil

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from simsched.api.results import RunResults
from simsched.engine.records import AllocationRecord, DecisionRecord, JobRecord, OutageRecord, Recorder
from simsched.errors import InputError
from simsched.results import writer as writer_module
from simsched.results.arrow import TYPES
from simsched.results.metric import Tables
from simsched.results.metrics import summarise
from simsched.results.reader import frame_of, read_cell, read_run, read_table
from simsched.results.rows import TABLES, Feature
from simsched.results.summary import summarise_folder
from simsched.results.writer import TableWriter, write_json

JOBS = [
    JobRecord("a", "ncf", "t", "u", "Pass", 1, 0, 0, 60, 160, 160, 100, 60, 30, 100, 0),
    JobRecord("b", "bert", "", "", "", 2, 24, 10, 60, 500, 490, 440, 50, 60, 880, 1),
]
ALLOCATIONS = [
    AllocationRecord("a", 60, 90, 1, 1, "0:1", True, 0, 0, 0, 0, 0.0, 0.0, 0.0, 0.0),
    AllocationRecord("a", 90, 160, 1, 1, "0:1", False, 256, 0, 256, 0, 0.0, 1.5, 0.9, 384.0),
]
ROUNDS = [
    DecisionRecord(60, 2, 2, 3, 4, 1, 2, 0, 0, {"z": 1.0, "fitness": 0.25}),
    DecisionRecord(120, 1, 1, 1, 4, 1, 0, 0, 1, {}),
]


ALWAYS = [table for table in TABLES.values() if not table.occasional]


def write(folder, **options):
    with TableWriter(folder, **options) as writer:
        recorder: Recorder = writer
        for job in JOBS:
            recorder.job(job)
        for allocation in ALLOCATIONS:
            recorder.allocation(allocation)
        for round_ in ROUNDS:
            recorder.decision(round_)


def make_cell(folder, **manifest):
    write(folder)
    write_json(folder / "manifest.json", {"policy": {"name": "fifo", "label": "FIFO"}, "seed": 7, **manifest})
    write_json(folder / "summary.json", {"jct_mean_s": 325.0})
    return folder


def make_run(folder, **content):
    make_cell(folder / "cells" / "c1")
    entry = {"cell": "c1", "policy": "F", "policy_name": "fifo", "seed": 1, "point": {}, "folder": "cells/c1"}
    write_json(folder / "run.json", {"name": "tiny", "cells": [entry], **content})
    return folder


def test_what_is_written_is_read_back(tmp_path):
    write(tmp_path)
    jobs = read_table(tmp_path, "jobs")
    assert [tuple(row) for row in jobs.itertuples(index=False)] == [tuple(job)[: jobs.shape[1]] for job in JOBS]
    allocations = read_table(tmp_path, "allocations")
    assert [tuple(row) for row in allocations.itertuples(index=False)] == [
        tuple(a)[: allocations.shape[1]] for a in ALLOCATIONS
    ]
    rounds = read_table(tmp_path, "rounds")
    assert list(rounds["time_s"]) == [60, 120]
    assert list(rounds["diagnostics"]) == [{"fitness": 0.25, "z": 1.0}, {}]


def test_the_files_have_the_columns_and_types_of_the_schema(tmp_path):
    write(tmp_path)
    for table in ALWAYS:
        schema = pq.read_schema(tmp_path / table.file)
        assert schema.names == [column.name for column in table.written()]
        assert [field.type for field in schema] == [TYPES[column.type] for column in table.written()]


def test_features_bring_columns_and_finer_times(tmp_path):
    write(tmp_path, features=[feature for feature in Feature if feature is not Feature.MAKES])
    jobs = read_table(tmp_path, "jobs")
    assert list(jobs.columns) == list(JobRecord._fields)
    allocations = read_table(tmp_path, "allocations")
    assert [tuple(row) for row in allocations.itertuples(index=False)] == [tuple(a) for a in ALLOCATIONS]
    assert {str(allocations[name].dtype) for name in ("start_s", "end_s")} == {"float64"}


def test_the_same_records_give_the_same_bytes_whatever_the_order_of_diagnostics(tmp_path):
    write(tmp_path / "one")
    shuffled = ROUNDS[0]._replace(diagnostics={"fitness": 0.25, "z": 1.0})
    with TableWriter(tmp_path / "two") as writer:
        for job in JOBS:
            writer.job(job)
        for allocation in ALLOCATIONS:
            writer.allocation(allocation)
        for round_ in (shuffled, ROUNDS[1]):
            writer.decision(round_)
    for table in ALWAYS:
        assert (tmp_path / "one" / table.file).read_bytes() == (tmp_path / "two" / table.file).read_bytes()


def test_rows_go_to_disk_in_groups_of_bounded_size(tmp_path):
    with TableWriter(tmp_path, row_group_rows=100) as writer:
        for number in range(250):
            writer.job(JOBS[0]._replace(job_id=str(number)))
    metadata = pq.read_metadata(tmp_path / "jobs.parquet")
    assert [metadata.row_group(i).num_rows for i in range(metadata.num_row_groups)] == [100, 100, 50]
    assert list(read_table(tmp_path, "jobs")["job_id"]) == [str(number) for number in range(250)]


def test_a_row_group_is_the_same_whether_its_rows_came_one_by_one_or_as_columns(tmp_path, monkeypatch):
    for folder, most in (("a", 7), ("b", 3)):
        monkeypatch.setattr(writer_module, "_ROWS_AS_THEY_CAME", most)
        with TableWriter(tmp_path / folder, row_group_rows=7) as writer:
            for number in range(20):
                writer.job(JOBS[number % 2]._replace(job_id=str(number)))
                writer.decision(ROUNDS[number % 2]._replace(time_s=60 * number))
    for file in (tmp_path / "a").iterdir():
        assert file.read_bytes() == (tmp_path / "b" / file.name).read_bytes()


def test_columns_that_repeat_themselves_are_read_back_as_they_came(tmp_path):
    signs = [0.0] * 1024 + [0.0] * 1024 + [-0.0] * 1024 + [0.0] * 10
    names = [str(number // 1024) for number in range(len(signs))]
    with TableWriter(tmp_path) as writer:
        for name, sign in zip(names, signs, strict=True):
            writer.allocation(ALLOCATIONS[0]._replace(job_id=name, progress=sign))
    read = read_table(tmp_path, "allocations")
    assert list(read["job_id"]) == names
    assert list(map(str, read["progress"])) == list(map(str, signs))


def test_rows_of_uneven_parts_leave_the_bytes_of_those_that_came_one_by_one(tmp_path):
    jobs = [JOBS[0]._replace(job_id=f"{number:0500d}", jct_s=number) for number in range(5000)]  # more than a page
    with TableWriter(tmp_path / "single", ["jobs"]) as writer:
        for job in jobs:
            writer.job(job)
    whole = pq.read_table(tmp_path / "single" / "jobs.parquet")
    with TableWriter(tmp_path / "joined", ["jobs"]) as writer:
        for at in range(0, len(jobs), 700):
            writer.extend("jobs", whole.slice(at, 700))
    assert (tmp_path / "joined/jobs.parquet").read_bytes() == (tmp_path / "single/jobs.parquet").read_bytes()


def test_an_empty_table_still_has_its_columns(tmp_path):
    with TableWriter(tmp_path):
        pass
    jobs = read_table(tmp_path, "jobs")
    assert len(jobs) == 0
    assert list(jobs.columns) == [column.name for column in TABLES["jobs"].written()]


def test_tables_not_asked_for_are_not_written(tmp_path):
    write(tmp_path, tables=("jobs",))
    assert [path.name for path in tmp_path.iterdir()] == ["jobs.parquet"]


def test_there_is_a_table_of_outages_only_where_there_are_any(tmp_path):
    write(tmp_path / "none")
    assert not (tmp_path / "none" / "outages.parquet").exists()
    assert list(read_cell(make_cell(tmp_path / "none")).outages.columns) == list(OutageRecord._fields)
    records = [OutageRecord(1, 10, 20, "off", True), OutageRecord(0, 5, 25, "node failure", False)]
    with TableWriter(tmp_path / "some") as writer:
        for record in records:
            writer.outage(record)
    assert [tuple(row) for row in read_table(tmp_path / "some", "outages").itertuples(index=False)] == records
    assert sorted(writer.short) == ["allocations", "jobs", "outages", "rounds"]


def test_outages_of_a_run_are_those_of_the_cells_that_have_any(tmp_path):
    make_run(tmp_path)
    empty = RunResults(read_run(tmp_path)).outages()
    assert (len(empty), empty.index.names) == (0, ["policy", "seed", "node"])
    make_cell(tmp_path / "cells" / "c2")
    with TableWriter(tmp_path / "cells" / "c2", tables=("outages",)) as writer:
        writer.outage(OutageRecord(1, 10, 20, "off", True))
    content = json.loads((tmp_path / "run.json").read_text())
    content["cells"].append({**content["cells"][0], "cell": "c2", "seed": 2, "folder": "cells/c2"})
    write_json(tmp_path / "run.json", content)
    assert RunResults(read_run(tmp_path)).outages()["end_s"].to_dict() == {("F", 2, 1): 20}


def test_an_unknown_table_is_refused(tmp_path):
    with pytest.raises(InputError, match="no result table 'job'"):
        TableWriter(tmp_path, tables=("job",))


def write_and_fail(folder):
    with TableWriter(folder, row_group_rows=1) as writer:
        writer.job(JOBS[0])
        writer.outage(OutageRecord(1, 10, 20, "off", True))
        message = "the simulation failed"
        raise RuntimeError(message)


def test_a_failed_block_leaves_no_files(tmp_path):
    with pytest.raises(RuntimeError, match="simulation failed"):
        write_and_fail(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_record_of_the_wrong_type_fails_at_the_end_and_leaves_no_files(tmp_path):
    writer = TableWriter(tmp_path)
    writer.__enter__()
    writer.job(JOBS[0]._replace(jct_s="long"))  # type: ignore[arg-type]
    with pytest.raises(pa.ArrowInvalid):
        writer.__exit__(None, None, None)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_made_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot write results"), TableWriter(tmp_path / "file" / "inside"):
        pass


def test_json_has_sorted_keys_and_no_partial_file_stays(tmp_path):
    write_json(tmp_path / "x.json", {"b": 1, "a": "ä"})
    assert (tmp_path / "x.json").read_text(encoding="utf-8") == '{\n  "a": "ä",\n  "b": 1\n}\n'
    with pytest.raises(ValueError, match="not JSON compliant"):
        write_json(tmp_path / "x.json", {"a": float("nan")})
    assert json.loads((tmp_path / "x.json").read_text(encoding="utf-8")) == {"a": "ä", "b": 1}
    assert [path.name for path in tmp_path.iterdir()] == ["x.json"]


def test_a_cell_reads_its_tables_when_asked(tmp_path):
    cell = read_cell(make_cell(tmp_path, workload={"name": "workload-6"}))
    assert (cell.policy, cell.policy_name, cell.seed, cell.workload_name) == ("FIFO", "fifo", 7, "workload-6")
    assert cell.summary == {"jct_mean_s": 325.0}
    assert cell.has("rounds")
    assert len(cell.jobs) == 2
    assert cell.jobs is cell.jobs
    assert len(cell.allocations) == 2
    assert list(cell.table("rounds", ["time_s"]).columns) == ["time_s"]


def test_the_summary_of_a_folder_is_that_of_its_tables(tmp_path):
    write(tmp_path)
    tables = [read_table(tmp_path, name) for name in ("jobs", "allocations", "rounds")]
    assert summarise_folder(tmp_path, 4) == summarise(Tables(tables[0], tables[1], tables[2], 4))
    (tmp_path / "allocations.parquet").unlink()
    (tmp_path / "rounds.parquet").unlink()
    assert summarise_folder(tmp_path, 4) == summarise(Tables(tables[0], None, None, 4))


def test_short_tables_need_not_be_read_back(tmp_path):
    with TableWriter(tmp_path, row_group_rows=3) as writer:
        for record in JOBS:
            writer.job(record)
        for number in range(4):
            writer.decision(ROUNDS[number % 2])
    assert sorted(writer.short) == ["allocations", "jobs"]  # the decisions fill more than one row group
    for name, table in writer.short.items():
        pd.testing.assert_frame_equal(frame_of(table), read_table(tmp_path, name))
    assert summarise_folder(tmp_path, 4, at_hand=writer.short) == summarise_folder(tmp_path, 4)


def test_short_tables_may_be_left_to_the_caller_to_write(tmp_path):
    write(tmp_path / "written")
    with TableWriter(tmp_path / "kept", row_group_rows=3, keep_short=True) as writer:
        for record in JOBS:
            writer.job(record)
        for record in ALLOCATIONS:
            writer.allocation(record)
        for number in range(4):
            writer.decision(ROUNDS[number % 2])
    assert [path.name for path in (tmp_path / "kept").iterdir()] == ["rounds.parquet"]
    assert writer.contents == {
        name: (tmp_path / "written" / name).read_bytes() for name in ("jobs.parquet", "allocations.parquet")
    }


@pytest.mark.parametrize(("rows", "compression"), [(32, "UNCOMPRESSED"), (33, "ZSTD")])
def test_tables_of_few_rows_are_not_compressed(tmp_path, rows, compression):
    with TableWriter(tmp_path) as writer:
        for number in range(rows):
            writer.job(JOBS[0]._replace(job_id=str(number)))
    assert pq.read_metadata(tmp_path / "jobs.parquet").row_group(0).column(0).compression == compression
    assert list(read_table(tmp_path, "jobs")["job_id"]) == [str(number) for number in range(rows)]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"name": "x"}', "run.json: cells: is missing"),
        ('{"name": "x", "cells": []}', "lists no cells"),
        ('{"name": "x", "cells": [{"cell": "c"}]}', r"run.json: cells\[0\]\.policy: is missing"),
    ],
)
def test_a_damaged_run_file_is_refused(tmp_path, text, message):
    (tmp_path / "run.json").write_text(text)
    with pytest.raises(InputError, match=message):
        read_run(tmp_path)


def test_every_missing_cell_is_named_at_once(tmp_path):
    make_run(tmp_path)
    content = json.loads((tmp_path / "run.json").read_text())
    content["cells"] += [content["cells"][0] | {"folder": f"cells/{name}"} for name in ("c2", "c3")]
    write_json(tmp_path / "run.json", content)
    with pytest.raises(InputError) as caught:
        read_run(tmp_path)
    assert ["c2" in caught.value.problems[0].where, "c3" in caught.value.problems[1].where] == [True, True]


def test_a_truncated_table_is_refused_with_its_name(tmp_path):
    cell = read_cell(make_cell(tmp_path))
    whole = (tmp_path / "jobs.parquet").read_bytes()
    (tmp_path / "jobs.parquet").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(InputError, match=r"jobs\.parquet: cannot be read as Parquet"):
        _ = cell.jobs


def test_a_missing_table_and_a_foreign_one_are_refused(tmp_path):
    cell = read_cell(make_cell(tmp_path))
    (tmp_path / "rounds.parquet").unlink()
    with pytest.raises(InputError, match="table of rounds is not there"):
        _ = cell.rounds
    pd.DataFrame({"x": [1]}).to_parquet(tmp_path / "rounds.parquet")
    with pytest.raises(InputError, match="version none"):
        _ = cell.rounds
    shutil.copy(tmp_path / "jobs.parquet", tmp_path / "rounds.parquet")
    with pytest.raises(InputError, match="lacks the column 'time_s'"):
        _ = cell.rounds


@pytest.mark.parametrize(
    ("file", "place", "value", "message"),
    [
        ("run.json", ("cells", 0, "seed"), "1", r"run.json: cells\[0\].seed: must be a whole number, not '1'"),
        ("run.json", ("cells", 0, "folder"), "../../x", r"cells\[0\].folder: is '../../x', which leads out of"),
        ("manifest.json", ("jobs",), -1, r"manifest.json: jobs: must be at least 0, not -1"),
        ("manifest.json", ("cluster",), [{"nodes": 10**9, "gpus_per_node": 4, "gpu_type": "a"}],
         r"cluster\[0\].nodes: must be at most 1e\+06, not 1000000000"),
        ("summary.json", ("makespan_s",), True, r"summary.json: makespan_s: must be a number, not true"),
        ("summary.json", ("makespan_s",), -5, r"summary.json: makespan_s: is -5, which it cannot be"),
    ],
)  # fmt: skip
def test_every_stored_field_is_checked_and_named_in_one_line(tmp_path, file, place, value, message):
    cell = tmp_path / "cells" / "c"
    cell.mkdir(parents=True)
    entry = {"cell": "c", "folder": "cells/c", "policy": "p", "seed": 1, "point": {}}
    held = {
        "run.json": {"name": "x", "cells": [entry]},
        "manifest.json": {"policy": {"name": "p"}, "seed": 1},
        "summary.json": {"makespan_s": 5.0},
    }
    changed = held[file]
    for key in place[:-1]:
        changed = changed[key]
    for name, content in held.items():
        (tmp_path if name == "run.json" else cell).joinpath(name).write_text(json.dumps(content))
    assert read_run(tmp_path).name == "x"
    changed[place[-1]] = value
    (tmp_path if file == "run.json" else cell).joinpath(file).write_text(json.dumps(held[file]))
    with pytest.raises(InputError, match=message) as error:
        read_run(tmp_path)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("table", "column", "value", "kind", "message"),
    [
        ("jobs", "jct_s", -1, None, "its column 'jct_s' holds -1, less than 0"),
        ("jobs", "jct_s", "x", pa.string(), "its column 'jct_s' is of string, not int64"),
        ("allocations", "placement", "0:-1", None, "its column 'placement' holds '0:-1'"),
    ],
)
def test_a_value_that_no_run_gives_is_refused_with_its_column(tmp_path, table, column, value, kind, message):
    write(tmp_path)
    path = tmp_path / TABLES[table].file
    held = pq.read_table(path)
    assert len(read_table(tmp_path, table)) == held.num_rows > 0
    field = held.schema.field(column)
    values = pa.array([value] * held.num_rows, kind or field.type)
    at = held.schema.get_field_index(column)
    pq.write_table(held.set_column(at, pa.field(column, values.type), values), path)
    with pytest.raises(InputError, match=message):
        read_table(tmp_path, table)
