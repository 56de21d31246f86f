"""The version of the result tables, which can be asked for without loading what writes them."""

#: Stored in every file, and raised when a column changes its meaning.
SCHEMA_VERSION = "1"
