"""The version of simsched."""

__version__ = "0.1.0"
