"""Policies that order a queue: by arrival, size, service or share."""
