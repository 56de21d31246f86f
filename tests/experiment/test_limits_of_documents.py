"""Documents and grids that are too large are refused, or cost little."""

import itertools
import textwrap

import pytest

from simsched.documents.yaml_lines import parse
from simsched.errors import InputError
from simsched.experiment import grid as grid_module, validation
from simsched.experiment.grid import look_into, make_grid, spread
from simsched.experiment.validation import read_experiment
from simsched.policy import registry
from simsched.sources import plugin_code


def chain(names, line):
    """Return lines each of which names the one before many times."""
    return "".join(line(after, f"*{before}") for before, after in itertools.pairwise(names))


ALIASES = "a: &a [1, 1]\n" + chain("abcdefgh", lambda name, alias: f"{name}: &{name} [{', '.join([alias] * 10)}]\n")
MERGES = "a: &a {x: 1}\n" + chain(
    "abcdefg", lambda name, alias: f"{name}: &{name}\n  <<: [{', '.join([alias] * 12)}]\n"
)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (ALIASES, "values when its aliases are written out"),
        ("a: " + "[" * 60 + "]" * 60, "is nested deeper than 50 levels"),
        ("a: " + "{b: " * 5000 + "1" + "}" * 5000, "is nested deeper than 50 levels"),
        (MERGES, "values when its aliases are written out"),
        ("a: 99999999999999999999", "the value at 'a' is too large"),
        ('a: {b: "x\\0y"}', "the value at 'a.b' holds the character NUL"),
    ],
    ids=["aliases", "depth", "great depth", "merges", "number", "NUL"],
)
def test_a_document_has_limits(text, said):
    with pytest.raises(InputError, match=said):
        parse(text, "e.yaml")


def test_places_of_a_sample_are_spread_evenly():
    assert spread(10, 4) == [0, 3, 6, 9]
    assert spread(3, 4) == [0, 1, 2]


EXPERIMENT = """\
name: many
cluster: {nodes: 2, gpus_per_node: 4}
workload: {path: jobs.csv, recipe: replay}
policies: [{name: fifo}, {name: srtf}]
seeds: 1000
sweep: {engine.restart_delay_s: [%s], engine.interference: [0.1, 0.2]}
"""


def test_a_large_grid_is_checked_by_a_sample(tmp_path, monkeypatch):
    monkeypatch.setattr(grid_module, "_MOST_CHECKED", 5)
    (tmp_path / "jobs.csv").write_text("submit_time,num_gpus,duration\n0,1,100\n")
    path = tmp_path / "e.yaml"
    path.write_text(EXPERIMENT % ", ".join(map(str, range(10))))
    told = []
    total, made = look_into(read_experiment(path), lambda made, total: told.append((made, total)))
    assert (total, len(made), told[-1]) == (40_000, 5, (5, 5))
    last = made[-1]
    assert last.label == "srtf"
    assert dict(last.point) == {"engine.restart_delay_s": 9, "engine.interference": 0.2}
    assert last.task.engine.restart_delay_s == 9


@pytest.mark.parametrize(
    ("place", "most", "said"), [(validation, "MOST_POINTS", "20 points"), (grid_module, "_MOST_CELLS", "40000 cells")]
)
def test_more_points_or_cells_than_anyone_can_run_are_refused(tmp_path, monkeypatch, place, most, said):
    monkeypatch.setattr(place, most, 10)
    (tmp_path / "jobs.csv").write_text("submit_time,num_gpus,duration\n0,1,100\n")
    path = tmp_path / "e.yaml"
    path.write_text(EXPERIMENT % ", ".join(map(str, range(10))))
    with pytest.raises(InputError, match=f"these are {said}, more than the 10 "):
        make_grid(read_experiment(path))


def test_helpers_and_bases_of_a_policy_are_part_of_its_sources(tmp_path, monkeypatch):
    files = {
        "a_helper.py": "import a_deeper_helper\n",
        "a_deeper_helper.py": "x = 1\n",
        "a_base.py": "from simsched.policy import Policy\nclass Base(Policy):\n    name = 'base'\n",
        "a_policy.py": textwrap.dedent(
            """
            import numpy, yaml
            from a_base import Base
            class Mine(Base):
                name = "mine"
                def decide(self, view, rng):
                    import a_helper
            """
        ),
    }
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    policy = registry.load("a_policy:Mine")
    before = plugin_code(policy).modules
    assert sorted(before) == ["a_base", "a_deeper_helper", "a_helper", "a_policy"]
    assert list(plugin_code(policy).libraries) == ["PyYAML", "numpy"]
    for name in ("a_base", "a_deeper_helper"):
        (tmp_path / f"{name}.py").write_text(files[f"{name}.py"] + "# changed\n")
        assert plugin_code(policy).modules[name] != before[name]


def test_a_link_to_itself_and_a_home_that_there_is_not_are_no_files(tmp_path):
    (tmp_path / "loop.csv").symlink_to(tmp_path / "loop.csv")
    path = tmp_path / "e.yaml"
    for given in ("loop.csv", "~nobody-has-this-name/jobs.csv"):
        path.write_text(f"name: e\nworkload: {{path: {given}, recipe: replay}}\npolicies: [{{name: fifo}}]\n")
        with pytest.raises(InputError, match=r"workload\.path: there is no file or folder '"):
            make_grid(read_experiment(path))
        path.write_text(f"name: e\npolicies: [{{name: '{given}:P'}}]\n".replace(".csv", ".py"))
        with pytest.raises(InputError, match="there is no file '"):
            read_experiment(path)
