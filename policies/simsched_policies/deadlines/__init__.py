"""Policies whose jobs have deadlines."""
