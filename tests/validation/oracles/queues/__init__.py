"""Policies for rigid jobs replayed by plain loops over seconds, which share nothing with engine and policies."""
