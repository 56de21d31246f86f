"""Quotas of cluster queues in a tree of cohorts, as Kueue runs them: what may be admitted, and who must make way.

Pure functions and one ledger of usage; no clock, no nodes and no GPUs, which belong to the policy that uses them.
"""
