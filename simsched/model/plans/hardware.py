"""What a step's time depends on beside model and plan: GPUs, the software that drives them, and the network."""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd

from simsched.model.placement import Shape, Tier


@dataclass(frozen=True)
class Hardware:
    """A GPU with the software measured on it: what is printed in data sheets, and a few numbers that are fitted.

    Rates are FLOP/s and bytes/s of one GPU, `node_bandwidth` the bytes/s of all network cards of a node. Matrix
    products reach `efficiency` of the peak, those of attention and output that of `other_flops`. `pointwise_s` are
    seconds a byte of one pass over a layer, `fixed_s` the seconds of a pass over a layer that launches and gaps add, `host_s` those that the host needs at least.
    Collectives reach `network_share` of a network's bandwidth; `exposed` is the share of those of a layer that nothing
    hides, `exposed_messages` that of messages between stages, `overlap` the backward passes behind which the gradients' sum hides. A step takes `spread` longer for each
    doubling of the nodes.
    """

    name: str
    gpu_type: str
    memory_bytes: float
    peak_flops: float
    other_flops: float
    efficiency: float
    pointwise_s: float
    fixed_s: float
    link_bandwidth: float
    link_latency_s: float
    node_gpus: int
    node_bandwidth: float
    network_share: float = 1.0
    network_latency_s: float = 0.0
    exposed: float = 1.0
    exposed_messages: float = 1.0
    overlap: float = 0.0
    spread: float = 0.0
    host_s: float = 0.0
    optimiser_s: float = 3e-11
    fused: bool = False
    sequence_parallel: bool = False
    gradient_bytes: int = 4
    buffers: float = 0.075
    host_bandwidth: float = 25e9

    def tiers(self, shape: Shape) -> tuple[Tier, ...]:
        """Return how a site lies on the network of its nodes; () on a single node."""
        if len(shape) < 2:
            return ()
        return (Tier(gcd(*shape), max(shape), self.node_bandwidth, self.network_latency_s),)
