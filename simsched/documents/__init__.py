"""YAML with line numbers, dotted keys and strict checking; what keys mean belongs to the rooms that use it."""
