"""simsched: a discrete-time, trace-driven simulator of deep-learning clusters."""

__version__ = "0.1.0"
