"""Rubick: reconfigures the GPUs and the parallel plans of jobs together."""

from simsched_policies.adaptive.rubick.policy import Rubick as Rubick
