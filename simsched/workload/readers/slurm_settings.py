"""An administrator's settings of Slurm as parameters of `slurm-backfill`; lists what is not modelled.

It reads slurm.conf, `scontrol show partition` and `show reservation`, and `sacctmgr show qos -P` and `show assoc -P`.
Names follow SchedMD's pages slurm.conf, sacctmgr, "Quality of Service (QOS)" and "Resource Limits".
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import MappingProxyType
from typing import Any
from zoneinfo import ZoneInfo

from simsched.errors import input_error
from simsched.reading import check_header, moment, number, read_text, whole_number
from simsched.workload.readers.slurm_nodes import expand_nodes

_UNLIMITED = frozenset({"", "unlimited", "infinite", "n/a", "none", "-1", "(null)"})
_TIME = re.compile(r"(?:(\d{1,9})-)?(\d{1,9})(?::(\d{1,9}))?(?::(\d{1,9}))?", re.ASCII)
_GIB = {"K": 1 / 1024**2, "M": 1 / 1024, "G": 1.0, "T": 1024.0, "P": 1024.0**2, "": 1 / 1024}
#: Keys of slurm.conf that do not affect scheduling.
_IDLE = re.compile(
    r"(log|port|dir|user$|host|addr|file|pid|timeout|auth|mail|debug|state|cred|cluster|proctrack|task|launch|mpi|return|"
    r"accounting|jobcomp|jobacct|switch|prolog|epilog|health|slurm(d|ctld)|srun|select|grestypes|interval$)"
)
_SCHEDULER: Mapping[str, tuple[str, Callable[[str], float]]] = {
    "bf_max_job_test": ("max_jobs", lambda text: whole_number(text, "it")),
    "bf_window": ("window_s", lambda text: 60 * whole_number(text, "it")),
    "bf_interval": ("interval_s", lambda text: number(text, "it")),
    "bf_resolution": ("resolution_s", lambda text: whole_number(text, "it")),
    "bf_max_job_user": ("max_jobs_per_user", lambda text: whole_number(text, "it")),
    "default_queue_depth": ("queue_depth", lambda text: whole_number(text, "it")),
}
#: The days of the week, Monday first, on which a reservation with a flag repeats at its time (scontrol, "Flags").
_DAYS: Mapping[str, Sequence[int]] = {"DAILY": range(7), "WEEKDAY": range(5), "WEEKEND": (5, 6)}
#: How long a reservation without an end lasts: scontrol takes a duration that is infinite for a year.
_ENDLESS = timedelta(days=365)
#: The longest duration that is told apart, in hours: a hundred years.
_LONGEST_H = 876_000.0
#: How long after the last submission reservations still recur, since jobs of the log may still wait.
_ON_S = 30 * 86400
#: Slurm's defaults for keys missing from slurm.conf.
_BACKFILL = MappingProxyType({"kind": "conservative", "interval_s": 30.0, "resolution_s": 60})
_WEIGHTS = {"age": "age", "fairshare": "fair_share", "jobsize": "size", "partition": "partition", "qos": "qos"}


@dataclass
class SlurmSettings:
    """Parameters of `slurm-backfill` as plain data, nodes of partitions, dated reservations, and unused settings.

    `reservations` name nodes and dates; `params_from` converts them to indices and seconds.
    """

    backfill: dict[str, Any] = field(default_factory=dict)
    priority: dict[str, Any] = field(default_factory=dict)
    preemption: dict[str, Any] = field(default_factory=dict)
    limits: dict[str, Any] = field(default_factory=dict)
    reservations: list[dict[str, Any]] = field(default_factory=list)
    partition_nodes: dict[str, tuple[str, ...]] = field(default_factory=dict)
    unused: list[str] = field(default_factory=list)

    def params_from(
        self, origin: datetime | None, nodes: Sequence[str], time_zone: str = "UTC", lasts_s: int = 0
    ) -> dict[str, Any]:
        """Return the policy's parameters for a log that begins at `origin` (UTC), on nodes in the given order.

        Reservations are in `time_zone`; recurring ones repeat from the start of the log until `_ON_S` after its end at
        `lasts_s`.
        """
        place = {name: i for i, name in enumerate(nodes)}
        reserved, start = [], (origin or datetime(1970, 1, 1)).replace(tzinfo=UTC)
        for one in self.reservations if origin is not None else ():
            known = [place[name] for name in one["nodes"] if name in place]
            for times in _occurrences(one, start, lasts_s, ZoneInfo(time_zone)) if known else ():
                local = (at.replace(tzinfo=at.tzinfo or ZoneInfo(time_zone)) for at in times)
                begin, end = ((at - start).total_seconds() for at in local)
                if end > 0:
                    reserved.append({"start_s": int(begin), "end_s": int(end), "nodes": known, "name": one["name"]})
        limits = {**self.limits, **({"reservations": reserved} if reserved else {})}
        parts = {"backfill": self.backfill, "priority": self.priority, "preemption": self.preemption, "limits": limits}
        return {name: value for name, value in parts.items() if value}

    def said(self) -> str:
        """Return a text of the unused settings; empty if all were used."""
        return f"  not modelled: {', '.join(sorted(set(self.unused)))}" if self.unused else ""


def read_settings(paths: Sequence[Path]) -> SlurmSettings:
    """Read an administrator's files and detect each by its content; raises `InputError` if one is of no known kind."""
    found = SlurmSettings()
    for path in paths:
        text = read_text(path)
        head = next((line for line in text.splitlines() if line.strip() and not line.startswith("#")), "")
        columns = [name.strip() for name in head.split("|")]
        if {"Name", "Preempt"} <= set(columns):
            _table(path, text, found, _qos)
        elif {"Account", "User"} <= set(columns):
            _table(path, text, found, _association)
        elif "ReservationName=" in text:
            _records(path, text, "ReservationName", found, _reservation)
        elif re.search(r"(?m)^\s*(ClusterName|SchedulerType|SlurmctldHost|SchedulerParameters)\s*=", text):
            _conf(path, text, found)
        elif "PartitionName=" in text:
            _records(path, text, "PartitionName", found, _partition)
        elif re.search(r"(?m)^\s*(NodeName=.*)?Name=gpu", text):
            found.unused.append(f"{path.name} (GPUs are taken from the description of the nodes)")
        else:
            remedy = "give slurm.conf, or the output of `scontrol show partition`, `scontrol show reservation`, "
            raise input_error(
                path, "does not hold Slurm settings", remedy + "`sacctmgr show qos -P` or `show assoc -P`"
            )
    return found


#: Handles the fields of a record, with file and line for messages.
_Take = Callable[[Path, int, Mapping[str, str], SlurmSettings], None]


def _table(path: Path, text: str, found: SlurmSettings, take: _Take) -> None:
    lines = [(i, line) for i, line in enumerate(text.splitlines(), 1) if line.strip() and not line.startswith("#")]
    header = [name.strip() for name in lines[0][1].split("|")]
    check_header(path, [name for name in header if name], line=lines[0][0])
    for i, line in lines[1:]:
        cells = line.split("|")
        if len(cells) != len(header):
            message = f"has {len(cells)} fields, and the header {len(header)}"
            raise input_error(path, message, "print it again with -P", line=i)
        row = dict(zip(header, cells, strict=True))
        take(path, i, {key: value.strip() for key, value in row.items() if key and value.strip()}, found)


def _records(path: Path, text: str, first: str, found: SlurmSettings, take: _Take) -> None:
    begins = [match.start() for match in re.finditer(rf"{first}=", text)]
    for begin, end in zip(begins, [*begins[1:], len(text)], strict=True):
        take(path, text.count("\n", 0, begin) + 1, dict(re.findall(r"(\w+)=(\S*)", text[begin:end])), found)


def _conf(path: Path, text: str, found: SlurmSettings) -> None:
    """Read slurm.conf: scheduler, priorities, preemption and partitions."""
    found.backfill |= _BACKFILL
    begun = ""
    for i, part in enumerate(text.splitlines(), 1):
        line = begun + part.split("#")[0].strip()
        begun = line.removesuffix("\\") if line.endswith("\\") else ""
        if begun:
            continue
        key, _, value = line.partition("=")
        name = key.strip().lower()
        if name == "partitionname":
            _partition(path, i, dict(re.findall(r"(\w+)=(\S*)", line)), found)
        elif name and name != "nodename":
            try:
                used = _conf_key(name, value.strip(), found)
            except ValueError:
                raise input_error(path, f"{key.strip()} is '{value.strip():.40}'", "give a number", line=i) from None
            if not used and not _IDLE.search(name):
                found.unused.append(key.strip())


def _conf_key(name: str, value: str, found: SlurmSettings) -> bool:
    """Read a key of slurm.conf; return whether it is modelled."""
    low = value.lower()
    if name == "schedulertype":
        found.backfill["kind"] = "none" if low == "sched/builtin" else "conservative"
    elif name == "schedulerparameters":
        _scheduler_parameters(value, found)
    elif name == "preempttype":
        if low == "preempt/partition_prio":
            found.preemption["by"] = "partition_prio"
    elif name == "preemptmode":
        mode = next((one for one in ("requeue", "suspend", "cancel") if one in low.split(",")), "off")
        found.preemption |= {"mode": mode, **({"requeue_loses": True} if mode == "requeue" else {})}
    elif name.startswith("priorityweight") and name.removeprefix("priorityweight") in _WEIGHTS:
        found.priority[_WEIGHTS[name.removeprefix("priorityweight")]] = number(value, name)
    elif name in ("prioritymaxage", "prioritydecayhalflife"):
        found.priority["max_age_s" if name == "prioritymaxage" else "half_life_s"] = 3600 * (_hours(value) or 0.0)
    elif name == "prioritycalcperiod":
        found.priority["update_s"] = 60 * number(value, name)
    elif name == "priorityfavorsmall":
        found.priority["favour_small"] = low == "yes"
    elif name == "licenses":
        counts = (one.partition(":") for one in value.split(",") if one)
        found.limits["licences"] = {one: whole_number(count or 1, name) for one, _, count in counts}
    elif name == "accountingstorageenforce":
        if not {"limits", "safe", "qos", "all"} & set(low.split(",")):
            found.unused.append("limits of associations (AccountingStorageEnforce does not name them, and they count)")
    elif name == "selecttype" and low == "select/linear":
        found.unused.append("SelectType=select/linear (jobs share nodes unless the log has them as exclusive)")
    elif name == "selecttypeparameters" and "memory" not in low:
        found.unused.append("SelectTypeParameters without memory (memory counts if nodes and jobs name it)")
    elif name == "prioritytype":
        return low in ("priority/multifactor", "priority/basic")
    else:
        return False
    return True


def _scheduler_parameters(value: str, found: SlurmSettings) -> None:
    for part in filter(None, value.split(",")):
        key, _, given = part.partition("=")
        if key in _SCHEDULER:
            name, turn = _SCHEDULER[key]
            found.backfill[name] = turn(given)
        elif key == "bf_yield_interval":
            found.backfill["yield_s"] = whole_number(given, key) / 1e6
        elif key == "bf_continue":
            found.backfill["continues"] = True
        elif key == "preempt_youngest_first":
            found.preemption["youngest_first"] = True
        else:
            found.unused.append(f"SchedulerParameters {key}")


def _partition(path: Path, line: int, fields: Mapping[str, str], found: SlurmSettings) -> None:
    """Read a partition from slurm.conf or scontrol."""
    given = {key.lower(): value for key, value in fields.items()}
    name = given.pop("partitionname", "")
    if not name:
        raise input_error(path, "a partition has no name", "write PartitionName=NAME without blanks", line=line)
    tier = _read(path, line, _whole, given.pop("prioritytier", ""))
    one: dict[str, Any] = {
        "tier": 0 if tier == 1 else tier or 0,
        "priority": _read(path, line, _number, given.pop("priorityjobfactor", "")) or 0.0,
    }
    for key, target in (("maxtime", "max_time_h"), ("defaulttime", "default_time_h")):
        hours = _read(path, line, _hours, given.pop(key, ""))
        one |= {} if hours is None else {target: hours}
    one["max_nodes"] = _read(path, line, _whole, given.pop("maxnodes", ""))
    qos = given.pop("qos", "")
    if qos.lower() not in _UNLIMITED:
        one["qos"] = qos
    nodes = given.pop("nodes", "")
    if nodes and nodes.upper() != "ALL":
        found.partition_nodes[name] = tuple(expand_nodes(nodes))
    if name.upper() != "DEFAULT":
        found.limits.setdefault("partitions", {})[name] = {key: value for key, value in one.items() if value}
    if given.get("oversubscribe", "").lower().startswith("exclusive"):
        found.unused.append("partition oversubscribe=EXCLUSIVE (jobs hold what AllocTRES says)")
    if given.get("state", "up").lower() != "up":
        found.unused.append(f"partition state {given['state']}")
    modelled = ("state", "default", "totalcpus", "totalnodes", "tres", "trackable", "oversubscribe", "jobdefaults")
    told = {key for key, value in given.items() if value.lower() not in (*_UNLIMITED, "all", "no", "0", "yes", "up")}
    found.unused += [f"partition {key}" for key in sorted(told - set(modelled)) if not _IDLE.search(key)]


def _reservation(path: Path, line: int, fields: Mapping[str, str], found: SlurmSettings) -> None:
    """Read a reservation; a maintenance reservation admits nobody."""
    flags = fields.get("Flags", "").upper().split(",")
    begin, end = (_read(path, line, _moment, fields.get(key, "")) for key in ("StartTime", "EndTime"))
    if begin is None:
        found.unused.append(f"reservation {fields['ReservationName']} without a StartTime")
        return
    if end is None:
        hours = _read(path, line, _hours, fields.get("Duration", ""))
        end = begin + (_ENDLESS if hours is None else timedelta(hours=min(hours, _LONGEST_H)))
    if (begin.tzinfo is None) != (end.tzinfo is None) or end < begin:
        message = f"reservation {fields['ReservationName']} ends before it starts, or only one time has an offset"
        raise input_error(path, message, "print it again", line=line)
    name = "" if "MAINT" in flags else fields["ReservationName"]
    days: Collection[int] = {day for flag in flags for day in _DAYS.get(flag, ())}
    days = {begin.weekday()} if "WEEKLY" in flags else days
    again = {"days": days, "hourly": "HOURLY" in flags}
    if end - begin >= _ENDLESS:  # it has no end, so it does not come again
        again = {"days": (), "hourly": False}
    nodes = expand_nodes(fields.get("Nodes", ""))
    found.reservations.append({"begin": begin, "end": end, "nodes": nodes, "name": name, **again})


def _occurrences(
    one: Mapping[str, Any], start: datetime, lasts_s: int, zone: ZoneInfo
) -> Iterator[tuple[datetime, datetime]]:
    """Yield the starts and ends of a reservation, repeated daily or hourly while a log lasts."""
    begin, lasts = one["begin"], one["end"] - one["begin"]
    if one["hourly"]:  # by elapsed time, not by the clock
        begin = begin.replace(tzinfo=begin.tzinfo or zone).astimezone(UTC)
        hour, first = timedelta(hours=1), (start - begin - lasts) // timedelta(hours=1)
        for i in range(first, first + (lasts + timedelta(seconds=lasts_s + _ON_S)) // hour + 3):
            yield begin + i * hour, begin + i * hour + lasts
        return
    if not one["days"]:
        yield begin, one["end"]
        return
    first = (start.replace(tzinfo=None) - begin.replace(tzinfo=None) - lasts).days - 1
    for day in range(first, first + lasts.days + 3 + (lasts_s + _ON_S) // 86400):
        if (again := begin + timedelta(days=day)).weekday() in one["days"]:
            yield again, again + lasts


def _qos(path: Path, line: int, row: Mapping[str, str], found: SlurmSettings) -> None:
    """Read a quality of service from sacctmgr."""
    take = _Caps(path, line, row, found)
    if "Name" not in row:
        raise input_error(path, "a quality of service has no name", "print it again with -P", line=line)
    one = {
        "priority": take.number("Priority"),
        "preempts": [name for name in row.get("Preempt", "").split(",") if name],
        "group": take.caps("GrpTRES", "GrpJobs", "GrpSubmit"),
        "per_user": take.caps("MaxTRESPU", "MaxJobsPU", "MaxSubmitPU"),
        "per_account": take.caps("MaxTRESPA", "MaxJobsPA", "MaxSubmitPA"),
        "per_job": take.caps("MaxTRES", "", ""),
        "max_time_h": _read(path, line, _hours, row.get("MaxWall", "")),
    }
    grace_s = 3600 * (_read(path, line, _hours, row.get("GraceTime", "")) or 0.0)
    if grace_s:
        found.preemption["grace_s"] = max(grace_s, found.preemption.get("grace_s", 0.0))
    found.limits.setdefault("qos", {})[row["Name"]] = {key: value for key, value in one.items() if value}
    take.rest("QOS", {"Name", "Preempt", "GraceTime", "MaxWall"})


def _association(path: Path, line: int, row: Mapping[str, str], found: SlurmSettings) -> None:
    """Read an association from sacctmgr: an account, or a user of one."""
    take = _Caps(path, line, row, found)
    account, user = row.get("Account", "").strip(), row.get("User", "")
    group, own = take.caps("GrpTRES", "GrpJobs", "GrpSubmit"), take.caps("", "MaxJobs", "MaxSubmit")
    per_job = take.caps("MaxTRES", "", "")
    if user:
        caps = {**group, **own}
        if caps:
            found.limits.setdefault("users", {})[f"{account}/{user}"] = caps
        found.unused += ["MaxTRES of users"] if per_job else []
    else:
        shares = row.get("Share", "1")
        one = {
            "parent": "" if row.get("ParentName", "") == "root" else row.get("ParentName", ""),
            "shares": 1.0 if shares == "parent" else _read(path, line, _number, shares) or 1.0,
            "group": group, "per_user": own, "per_job": per_job,
        }  # fmt: skip
        if account != "root":
            found.limits.setdefault("accounts", {})[account] = {key: value for key, value in one.items() if value}
    take.rest("association", {"Cluster", "Account", "User", "ParentName", "Share", "QOS", "Def QOS", "Partition"})


class _Caps:
    """Reads the limits of one row and records which columns were read."""

    def __init__(self, path: Path, line: int, row: Mapping[str, str], found: SlurmSettings) -> None:
        self._path, self._line, self._row, self._found = path, line, row, found
        self._read: set[str] = {""}

    def number(self, column: str) -> float:
        """Return a number, 0 if there is none."""
        self._read.add(column)
        return _read(self._path, self._line, _number, self._row.get(column, "")) or 0.0

    def caps(self, tres: str, jobs: str, submitted: str) -> dict[str, Any]:
        """Return limits on amounts as fields of `Caps`."""
        self._read |= {tres, jobs, submitted}
        caps: dict[str, Any] = {}
        for part in filter(None, self._row.get(tres, "").split(",")):
            name, _, amount = part.partition("=")
            names = {"cpu": "cpus", "mem": "memory_gb", "node": "nodes", "gres/gpu": "gpus"}
            if name in names:
                turn = {"mem": _amount, "cpu": _number}.get(name, _whole)
                caps[names[name]] = _read(self._path, self._line, turn, amount) or 0
            else:
                self._found.unused.append(f"{tres} of {name}")
        for target, column in (("jobs", jobs), ("submitted", submitted)):
            value = _read(self._path, self._line, _whole, self._row.get(column, ""))
            caps |= {} if value is None else {target: value}
        return caps

    def rest(self, what: str, known: set[str]) -> None:
        """Record the unread columns that hold a value."""
        idle = ("", "0", "00:00:00", "1.000000", "cluster")
        left = {name for name, value in self._row.items() if value not in idle and name not in known | self._read}
        self._found.unused += [f"{what} {name}" for name in sorted(left)]


def _read(path: Path, line: int, turn: Callable[[str], Any], text: str) -> Any:
    """Convert a text to a value, None if there is none; raises `InputError` if the text is invalid."""
    if text.strip().lower() in _UNLIMITED:
        return None
    try:
        return turn(text)
    except ValueError:
        raise input_error(path, f"'{text:.40}' is not a value that Slurm writes", "print it again", line=line) from None


def _amount(text: str) -> float:
    """Convert a text such as 512G to GiB; a plain number is in MiB."""
    unit = text[-1:].upper()
    return _number(text[:-1]) * _GIB[unit] if unit in _GIB and unit else _number(text) * _GIB[""]


def _number(text: str) -> float:
    return number(text, "it", least=0)


def _whole(text: str) -> int:
    return whole_number(text, "it")


def _moment(text: str) -> datetime:
    return moment(text, "it")


def _hours(text: str) -> float | None:
    """Convert a Slurm time to hours: minutes, minutes:seconds, hours:minutes:seconds, days-hours..."""
    if text.strip().lower() in _UNLIMITED:
        return None
    match = _TIME.fullmatch(text.strip())
    if match is None:
        raise ValueError(text)
    days, *rest = match.groups()
    numbers = [float(one) for one in rest if one is not None]
    if days is not None:
        hours, minutes, seconds = (*numbers, 0.0, 0.0)[:3]
        return 24 * float(days) + hours + minutes / 60 + seconds / 3600
    if len(numbers) == 3:
        return numbers[0] + numbers[1] / 60 + numbers[2] / 3600
    minutes, seconds = (*numbers, 0.0)[:2]
    return minutes / 60 + seconds / 3600
