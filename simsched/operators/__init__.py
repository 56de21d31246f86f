"""Answers for the people who run a cluster, from its own log; no figures and no printing."""
