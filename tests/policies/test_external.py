"""Schedulers in other processes: the shipped clients give the bytes of srtf, and bad clients end only their own run."""

import contextlib
import json
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from click.testing import CliRunner
from simsched_policies.external import messages
from simsched_policies.external.policy import CLIENT, External
from simsched_policies.external.wire import ExternalError, Wire

import simsched as sim
from simsched.cli.new import new
from simsched.cli.output import schema
from simsched.errors import InputError


def workload(seed, jobs=120):
    chance = random.Random(seed)
    rows = [
        {
            "num_gpus": chance.choice([1, 1, 2, 4, 8]),
            "submit_time_s": chance.randint(0, 2000),
            "duration_s": 60 * i + 60,
        }
        for i in chance.sample(range(jobs), jobs)
    ]
    return sorted(rows, key=lambda row: row["submit_time_s"])


def same(one, other):
    return one.jobs.equals(other.jobs) and one.allocations.equals(other.allocations)


@pytest.fixture(scope="module")
def clients(tmp_path_factory):
    """The commands that start the client of each language, as `simsched new external` writes it."""
    folder, commands = tmp_path_factory.mktemp("clients"), {}
    builds = {
        "python": None,
        "c": ("cc", "-std=gnu11", "-Wall", "-Wextra", "-Werror", "-o"),
        "go": ("go", "build", "-o"),
    }
    for language, build in builds.items():
        with contextlib.chdir(folder):
            made = CliRunner().invoke(new, ["external", "mine", "--language", language])
        assert made.exit_code == 0, made.output
        (path,) = folder.glob(f"mine.{language[:2]}*")
        assert path.read_text().count("\n") <= 100
        commands[language] = (sys.executable, str(path))
        if build is not None:
            commands[language] = (str(folder / language),)
            if not shutil.which(build[0]):
                continue
            subprocess.run([*build, folder / language, path], check=True, env={**os.environ, "GOCACHE": str(folder)})
    return commands


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("failures", [None, {"node_mtbf_h": 2, "repair_median_h": 0.2}])
@pytest.mark.parametrize("language", ["python", "c", "go"])
def test_the_shipped_clients_give_the_bytes_of_srtf(language, seed, failures, clients):
    if not Path(clients[language][-1]).exists():
        pytest.skip(f"there is no compiler of {language}")
    given = {"jobs": workload(seed), "cluster": (4, 8), "failures": failures}
    assert same(sim.simulate(policy=External(command=clients[language]), **given), sim.simulate(policy="srtf", **given))


def test_the_page_and_every_message_follow_from_the_schema(monkeypatch):
    page = (Path(__file__).resolve().parents[2] / "docs" / "external.md").read_text("utf-8")
    assert messages.messages_markdown().rstrip() in page
    sent, send = [], Wire.send
    monkeypatch.setattr(Wire, "send", lambda wire, line: (sent.append(line), send(wire, line)))
    sim.simulate(policy=External(), jobs=workload(1, 20), cluster=(2, 8), failures={"node_mtbf_h": 2})
    kinds = {"hello": messages.Hello, "decide": messages.Decide}
    read = [messages.read(kinds[json.loads(line)["type"]], line) for line in sent]
    assert {type(one) for one in read} == set(kinds.values())
    assert json.loads(CliRunner().invoke(schema, ["--protocol"]).output)["discriminator"]["propertyName"] == "type"


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        ({"jbs": {}}, "'jbs' is no field of 'decision'; did you mean 'jobs'?"),
        ({"jobs": {"a": {"place": [], "besid": []}}}, "'besid' is no field of 'jobs.a'; did you mean 'beside'?"),
        ({"jobs": {"a": [[0, 1.5]]}}, "'1' of 'jobs.a.0' is 1.5: Input should be a valid integer"),
        ({"jobs": {"a": 7}}, "job 'a' has 7, which is no action"),
        ({"wake_at_s": True}, "'wake_at_s' of 'decision' is True"),
        ({"rest": "sleeps"}, "'rest' of 'decision' is 'sleeps': Input should be 'stays' or 'stops'"),
        ({"type": "ready"}, "a message of the type 'decision' was expected"),
        ([], "a message of the type 'decision' was expected"),
        ({"jobs": {"a": {"place": [[0, 1]], "plan": {"x": 1}}}}, "the plan of job 'a'"),
    ],
)
def test_what_is_wrong_with_an_answer_is_named(answer, told):
    with pytest.raises(ValueError, match=re.escape(told)):
        messages.decision(json.dumps(answer).encode())


def test_a_client_on_a_socket_decides_too(tmp_path):
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(tmp_path / "s"))
    listener.listen()

    def serve():
        peer, _ = listener.accept()
        with peer:
            subprocess.run([sys.executable, CLIENT], stdin=peer, stdout=peer, check=False)

    threading.Thread(target=serve, daemon=True).start()
    given = {"jobs": workload(3, 40), "cluster": (2, 8)}
    found = sim.simulate(policy=External(connect=f"unix:{tmp_path}/s"), **given)
    listener.close()
    assert same(found, sim.simulate(policy="srtf", **given))


READY = 'import sys, json, time\nsys.stdin.readline(); print(\'{"type": "ready", "version": 1}\', flush=True)\n'
DECIDES = READY + "print(json.dumps({'type': 'decision', **%r}), flush=True); sys.stdin.read()"
CLIENTS = {
    "dead at once": ("import sys; sys.exit(3)", "has ended with exit code 3 before the run did"),
    "silent": ("import time; time.sleep(60)", "does not answer within 0.5 s"),
    "of another version": ("print('{\"type\": \"ready\", \"version\": 2}', flush=True)\ninput()\ninput()", "version"),
    "slow": (READY + "time.sleep(60)", "does not answer within 0.5 s"),
    "without JSON": (READY + "print('hello', flush=True); sys.stdin.read()", "is refused: it is no JSON"),
    "with an unknown field": (DECIDES % {"job": {}}, "job"),
    "flooding": (READY + "while True: sys.stdout.write('x' * 65536)", "more than 16777216 bytes"),
    "lying": (DECIDES % {"jobs": {"nobody": [[0, 1]]}}, "nobody"),
    "greedy": (DECIDES % {"jobs": {"job-0": [[0, 99]]}}, "job-0"),
}  # fmt: skip


@pytest.mark.parametrize("kind", CLIENTS)
def test_a_bad_client_ends_its_run_with_a_clear_message_and_leaves_no_process(kind, tmp_path):
    code, told = CLIENTS[kind]
    (tmp_path / "client.py").write_text(
        f"import os\nopen({str(tmp_path / 'pid')!r}, 'w').write(str(os.getpid()))\n{code}"
    )
    policy = External(command=(sys.executable, str(tmp_path / "client.py")), timeout_s=5 if kind == "flooding" else 0.5)
    if kind not in ("silent", "slow"):
        policy.timeout_s = 20
    with pytest.raises((ExternalError, sim.EngineError) if hasattr(sim, "EngineError") else Exception, match=told):
        sim.simulate(jobs=[{"num_gpus": 1, "duration_s": 60}], policy=policy, cluster=(1, 4))
    if policy._wire is not None:
        policy._wire.close()
    pid = int((tmp_path / "pid").read_text())
    with pytest.raises(ProcessLookupError):
        os.kill(pid, signal.SIGCONT)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"command": ("x",), "connect": "unix:/y"}, "give either a command, or connect"),
        ({"connect": "/y"}, "give either a command, or connect"),
        ({"tell": ("goodput",)}, "the signal 'goodput' is no plain value"),
        ({"tell": ("remaining_wrk",)}, "did you mean 'remaining_work'?"),
    ],
)
def test_wrong_parameters_are_refused(given, told):
    with pytest.raises(InputError, match=told.replace("?", r"\?")):
        External(**given)


def test_a_client_that_is_not_there_is_named():
    with pytest.raises(ExternalError, match=r"the client './nowhere' cannot be reached: No such file"):
        sim.simulate(jobs=[{"num_gpus": 1, "duration_s": 60}], policy=External(command=("./nowhere",)), cluster=(1, 4))
