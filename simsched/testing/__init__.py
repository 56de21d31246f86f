"""What tests of policies need: the conformance kit, builders of views and workloads, hypothesis strategies."""

from simsched.testing.check_policy import Failure, check_policy

__all__ = ["Failure", "check_policy"]
