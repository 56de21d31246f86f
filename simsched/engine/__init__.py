"""The simulation engine: the clock, the processes, the state, the random streams and the invariants."""

#: The version of what a simulation means: raised whenever the same input gives other results.
SEMANTICS = 2
