"""Every registered agent conforms, and the kit notices agents that do not."""

from __future__ import annotations

import random

import pytest

from simsched.agent import AgentFactory, fixed_agent, registry
from simsched.errors import input_error
from simsched.model import BatchChoice
from simsched.testing import check_agent


@pytest.mark.parametrize("name", registry.names())
def test_every_agent_conforms(name):
    assert check_agent(registry.load(name), seeds=1) == []


class Beside:
    """An agent of a batch that stays, which the broken ones below change."""

    stale = False
    goodput = None

    def choose(self, site, epoch):
        return BatchChoice(max(8, 64 // site.gpus), 0)

    def observe(self, measurement):
        pass


class Base(AgentFactory):
    """Keeps 64 examples."""

    name = "base"
    beside: type = Beside

    def agent(self, request, facts):
        return self.beside() if facts.limits else fixed_agent(request, facts)


def agents_of(**changes):
    return type("Changed", (Base,), {"__doc__": "Changed.", "beside": type("ChangedBeside", (Beside,), changes)})


def choosing(function):
    return agents_of(choose=lambda self, site, epoch: function(site, epoch))


def refuse(self, request, facts):
    raise input_error("workload", "no batches")


def failed(make) -> set[str]:
    return {failure.check for failure in check_agent(make, seeds=1)}


def test_the_base_of_the_broken_ones_conforms():
    assert failed(Base) == set()


def test_each_fault_fails_the_check_that_is_for_it():
    limits, same = "batches within the application's limits", "same measurements, same batches"
    assert limits in failed(choosing(lambda site, epoch: BatchChoice(65, 0)))
    assert limits in failed(choosing(lambda site, epoch: BatchChoice(64, 0)))  # 512 in all on 8 GPUs, of at most 256
    assert limits in failed(choosing(lambda site, epoch: 64))
    drawn = choosing(lambda site, epoch: BatchChoice(random.randint(8, 32), 0))
    assert {same, "no global random generator", "not stale, same batch"} <= failed(drawn)
    assert "members of an agent" in failed(
        type("NoStale", (Base,), {"beside": type("Bare", (), {"choose": Beside.choose})})
    )
    assert "jobs without batches" in failed(
        type("Durations", (Base,), {"agent": lambda self, request, facts: Beside()})
    )
    by_name = type("ByName", (Base,), {"agent": lambda self, request, facts: agents_of(
        choose=lambda self, site, epoch: BatchChoice(8 + len(request.id), 0)).beside()})  # fmt: skip
    assert "names are labels" in failed(by_name)
    assert "declaration" in failed(type("Bare", (Base,), {"name": "", "__doc__": ""}))
    assert len(failed(type("Refuses", (Base,), {"agent": refuse}))) > 3
