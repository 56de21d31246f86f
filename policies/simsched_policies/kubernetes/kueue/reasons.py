"""Why a flavour does not take a workload, in Kueue's words."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from simsched.manifests import written


class Unfit(Enum):
    """A reason against a flavour; the value is the text."""

    NO_RESOURCE = "resource {what} unavailable in ClusterQueue"
    MISSING = "flavor {flavour} not found"
    TAINT = "untolerated taint {what} in flavor {flavour}"
    AFFINITY = "flavor {flavour} doesn't match node affinity"
    NOT_ALLOWED = "flavor {flavour} is not allowed for the workload"
    NOT_NOMINATED = "flavor {flavour} was not nominated"
    OTHER_SLICE = "could not assign {flavour} flavor since the original workload is assigned: {what}"
    ABOVE_MOST = (
        "insufficient quota for {what} in flavor {flavour}, previously considered podsets requests ({0}) + current "
        "podset request ({1}) > maximum capacity ({2})"
    )
    NOT_PROVIDED = "flavor {flavour} does not provide resource {what}"
    TOPOLOGY_OFF = "flavor {flavour} does not support TopologyAwareScheduling"
    TOPOLOGY_ONLY = "flavor {flavour} supports only TopologyAwareScheduling"
    SEVERAL_TOPOLOGIES = "more than one TAS flavor assigned: {what}"
    NO_TOPOLOGY = "workload requires Topology, but there is no TAS {what}"
    ELASTIC = "an elastic workload's slices do not support {what} topology"
    LEVELS = "flavor {flavour} does not contain the requested level"
    NO_PLACE = "{what}"
    WAITS = "insufficient unused quota for {what} in flavor {flavour}, {0} more needed"


class Why(NamedTuple):
    """One reason; `what` names its resource, taint or flavour."""

    unfit: Unfit
    what: str = ""
    amounts: tuple[int, ...] = ()

    def text(self, flavour: str) -> str:
        """Return the reason as Kueue writes it."""
        amounts = (written(self.what, amount) for amount in self.amounts)
        return self.unfit.value.format(*amounts, what=self.what, flavour=flavour)
