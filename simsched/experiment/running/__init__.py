"""Running the cells of an experiment and keeping their results; `experiment` says what a cell is made of."""
