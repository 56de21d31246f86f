"""Linear and mixed-integer programs that policies share; pure functions on arrays."""
