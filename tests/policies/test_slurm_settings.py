"""What an administrator's files say, in the words of Slurm's own output, and what a policy makes of them."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import pytest
from simsched_policies.production.slurm.policy import SlurmBackfill

from simsched.errors import InputError
from simsched.experiment import make_policy
from simsched.workload.readers import read_nodes, read_settings
from simsched.workload.readers.slurm_settings import SlurmSettings

CONF = """\
ClusterName=reference
SchedulerType=sched/backfill
SchedulerParameters=bf_interval=60,bf_window=2880,bf_max_job_test=100,\\
bf_max_job_user=7,preempt_youngest_first,bf_busy_nodes
PreemptType=preempt/qos   # a remark
PreemptMode=REQUEUE,GANG
PriorityType=priority/multifactor
PriorityWeightAge=1000
PriorityWeightFairshare=5000
PriorityWeightTRES=gres/gpu=10
PriorityMaxAge=14-0
PriorityDecayHalfLife=7-0
PriorityFavorSmall=YES
Licenses=matlab:3,ansys
AccountingStorageEnforce=limits,qos
SlurmctldPort=6817
NodeName=g[1-2] CPUs=64 RealMemory=512000 Gres=gpu:a100:8 State=UNKNOWN
NodeName=c1 CPUs=64 RealMemory=512000
PartitionName=DEFAULT Nodes=ALL
PartitionName=gpu Nodes=g[1-2] MaxTime=2-00:00:00 DefaultTime=60 PriorityTier=3 MaxNodes=1 QOS=part State=UP
"""
QOS = """\
Name|Priority|GraceTime|Preempt|PreemptMode|Flags|GrpTRES|GrpJobs|MaxTRES|MaxWall|MaxTRESPU|MaxJobsPU|MaxSubmitPU|MaxTRESPA
normal|10|00:00:30||cluster||cpu=100,gres/gpu=64|9|node=4|1-00:00:00|gres/gpu=8,mem=512G|4|20|gres/gpu=16
high|100|00:00:00|normal|cluster|DenyOnLimit|gres/gpu:a100=8|||||||
"""
ASSOC = """\
Cluster|Account|User|Partition|ParentName|Share|GrpTRES|GrpJobs|MaxTRES|MaxJobs|MaxSubmit|QOS
reference|root||||1||||||normal
reference|lab|||root|30|gres/gpu=40||gres/gpu=16|3|10|normal
reference|vision|||lab|10||||||normal
reference|vision|ann|||1|gres/gpu=4|||2||normal
"""
RESERVATION = """\
ReservationName=update StartTime=2024-03-02T08:00:00 EndTime=2024-03-02T10:00:00 Duration=02:00:00
   Nodes=g[1-2] NodeCnt=2 CoreCnt=128 Features=(null) PartitionName=gpu Flags=MAINT,SPEC_NODES
ReservationName=course StartTime=2024-03-01T01:00:00 EndTime=2024-03-01T02:00:00 Duration=01:00:00
   Nodes=g2 NodeCnt=1 Users=ann Flags=WEEKLY
"""


def settings(folder: Path, **texts: str) -> SlurmSettings:
    paths = []
    for name, text in texts.items():
        paths.append(folder / name)
        paths[-1].write_text(text)
    return read_settings(paths)


def test_slurm_conf_says_how_jobs_are_ordered_and_what_goes_before_them(tmp_path: Path) -> None:
    found = settings(tmp_path, conf=CONF)
    assert found.backfill == {
        "kind": "conservative",
        "interval_s": 60,
        "resolution_s": 60,
        "window_s": 2880 * 60,
        "max_jobs": 100,
        "max_jobs_per_user": 7,
    }
    assert found.priority == {
        "age": 1000,
        "fair_share": 5000,
        "max_age_s": 14 * 86400,
        "half_life_s": 7 * 86400,
        "favour_small": True,
    }
    assert found.preemption == {"mode": "requeue", "requeue_loses": True, "youngest_first": True}
    assert found.limits["licences"] == {"matlab": 3, "ansys": 1}
    gpu = {"tier": 3, "max_time_h": 48, "default_time_h": 1, "max_nodes": 1, "qos": "part"}
    assert found.limits["partitions"] == {"gpu": gpu}
    assert found.said() == "  not modelled: PriorityWeightTRES, SchedulerParameters bf_busy_nodes"


def test_slurm_conf_describes_the_nodes_too(tmp_path: Path) -> None:
    (tmp_path / "slurm.conf").write_text(CONF)
    cluster = read_nodes(tmp_path / "slurm.conf")
    assert [(one.name, one.gpus, one.cpus, one.partitions) for one in cluster.nodes] == [
        ("c1", 0, 64, ()),
        ("g1", 8, 64, ("gpu",)),
        ("g2", 8, 64, ("gpu",)),
    ]
    assert all(one.works for one in cluster.nodes)


def test_sacctmgr_says_who_may_hold_how_much(tmp_path: Path) -> None:
    found = settings(tmp_path, qos=QOS, assoc=ASSOC)
    assert found.limits["qos"]["normal"] == {
        "priority": 10,
        "group": {"cpus": 100, "gpus": 64, "jobs": 9},
        "per_user": {"gpus": 8, "memory_gb": 512, "jobs": 4, "submitted": 20},
        "per_account": {"gpus": 16},
        "per_job": {"nodes": 4},
        "max_time_h": 24,
    }
    assert found.limits["qos"]["high"] == {"priority": 100, "preempts": ["normal"]}
    assert found.preemption == {"grace_s": 30}
    assert found.limits["accounts"] == {
        "lab": {
            "shares": 30,
            "group": {"gpus": 40},
            "per_user": {"jobs": 3, "submitted": 10},
            "per_job": {"gpus": 16},
        },
        "vision": {"parent": "lab", "shares": 10},
    }
    assert found.limits["users"] == {"vision/ann": {"gpus": 4, "jobs": 2}}
    assert found.said() == "  not modelled: GrpTRES of gres/gpu:a100, QOS Flags"


def test_reservations_count_from_the_begin_of_the_log(tmp_path: Path) -> None:
    found = settings(tmp_path, reservations=RESERVATION)
    params = found.params_from(datetime(2024, 3, 1), ["g1", "g2"], "Europe/Berlin")  # an hour before UTC
    assert params["limits"]["reservations"] == [
        {"start_s": 31 * 3600, "end_s": 33 * 3600, "nodes": [0, 1], "name": ""},
        *(
            {"start_s": day * 86400, "end_s": day * 86400 + 3600, "nodes": [1], "name": "course"}
            for day in (0, 7, 14, 21, 28)  # WEEKLY, for thirty days after the last submission
        ),
    ]
    assert found.said() == ""


@pytest.mark.parametrize(
    ("flag", "hours"),
    [
        # 29 March 2024 is a Friday; on the 31st the clocks of Berlin go forward, and 8 o'clock comes after 23 h.
        ("DAILY", [7, 31, 54, 78]),
        ("WEEKDAY", [7, 78, 102, 126]),
        ("WEEKEND", [31, 54, 198, 222]),
        # It lasts an hour, and so the next one begins as it ends.
        ("HOURLY", [0, 1, 2, 3]),
    ],
)
def test_a_reservation_repeats_at_its_time_of_day(flag: str, hours: list[int], tmp_path: Path) -> None:
    """Source: the manual page of scontrol, Flags; what is shown of one that repeats is its next time."""
    text = f"ReservationName=class StartTime=2024-04-10T08:00:00 EndTime=2024-04-10T09:00:00 Nodes=g1 Flags={flag}\n"
    found = settings(tmp_path, reservations=text)
    params = found.params_from(datetime(2024, 3, 29), ["g1"], "Europe/Berlin", lasts_s=86400)
    starts = [one["start_s"] / 3600 for one in params["limits"]["reservations"]]
    assert starts[:4] == hours
    assert found.said() == ""


@pytest.mark.parametrize(
    ("says", "hours"),
    [
        ("", 365 * 24), ("Duration=UNLIMITED", 365 * 24), ("Duration=1-02:00:00", 26),
        ("Flags=HOURLY", 365 * 24), ("Flags=DAILY Duration=999999999-00:00:00", 876_000),
    ],
)  # fmt: skip
def test_a_reservation_without_an_end_lasts_for_its_duration(says: str, hours: int, tmp_path: Path) -> None:
    found = settings(tmp_path, reservations=f"ReservationName=r StartTime=2024-03-01T01:00:00 Nodes=g1 {says}\n")
    (one,) = found.params_from(datetime(2024, 3, 1), ["g1"])["limits"]["reservations"]
    assert (one["start_s"], one["end_s"]) == (3600, 3600 + hours * 3600)


def test_a_reservation_without_a_start_is_told(tmp_path: Path) -> None:
    found = settings(tmp_path, reservations="ReservationName=r EndTime=2024-03-01T01:00:00 Nodes=g1\n")
    assert (found.reservations, "reservation r without a StartTime" in found.said()) == ([], True)


def test_what_is_read_makes_a_policy(tmp_path: Path) -> None:
    found = settings(tmp_path, conf=CONF, qos=QOS, assoc=ASSOC, reservations=RESERVATION)
    policy = make_policy(SlurmBackfill, found.params_from(datetime(2024, 3, 1), ["g1", "g2"]))
    assert isinstance(policy, SlurmBackfill)
    assert policy.limits.qos["normal"].per_user.gpus == 8
    assert policy.limits.accounts["vision"].parent == "lab"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("hello\n", "does not hold Slurm settings"),
        (CONF.replace("=1000", "=many"), "conf:8: PriorityWeightAge is 'many'"),
        (QOS.replace("1-00:00:00", "soon"), "conf:2: 'soon' is not a value that Slurm writes"),
        (CONF.replace("PriorityTier=3", "PriorityTier=high"), "conf:20: 'high' is not a value that Slurm writes"),
        (QOS.replace("node=4", "node=inf"), "conf:2: 'inf' is not a value that Slurm writes"),
        (QOS.replace("|10|", "|" + "9" * 5000 + "|", 1), "conf:2: '999"),
        (CONF.replace("PartitionName=gpu", "PartitionName = gpu"), "conf:20: a partition has no name"),
        (QOS + "a|b\n", "conf:4: has 2 fields, and the header 14"),
        (RESERVATION.replace("2024-03-02T08:00:00", "2024-99-02"), "conf:1: '2024-99-02' is not a value"),
    ],
)
def test_errors_name_file_line_and_remedy(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(InputError) as error:
        settings(tmp_path, conf=text)
    assert said in str(error.value)


def test_what_bears_on_waits_and_is_not_modelled_is_listed(tmp_path: Path) -> None:
    conf = (
        "ClusterName=c\nSelectType=select/linear\nSelectTypeParameters=CR_CPU\nInclude more.conf\n"
        "PartitionName=p Nodes=ALL OverSubscribe=EXCLUSIVE State=DRAIN\n"
    )
    qos = "Name|Preempt|UsageFactor|GrpTRESMins|PreemptMode\nnormal||2.000000|gres/gpu=100|suspend\n"
    assoc = "Account|User|MaxWall\nlab||1-00:00:00\n"
    said = settings(tmp_path, conf=conf, qos=qos, assoc=assoc).said()
    for what in (
        "SelectType=select/linear", "SelectTypeParameters without memory", "Include more.conf",
        "partition oversubscribe=EXCLUSIVE", "partition state DRAIN", "QOS UsageFactor", "QOS GrpTRESMins",
        "QOS PreemptMode", "association MaxWall",
    ):  # fmt: skip
        assert what in said
