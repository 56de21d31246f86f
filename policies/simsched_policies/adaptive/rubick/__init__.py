"""Rubick: GPUs and plans of jobs reconfigured together."""

from simsched_policies.adaptive.rubick.policy import Rubick as Rubick
