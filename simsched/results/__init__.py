"""The result tables: their columns, how they are written and read, and what is computed from them."""
