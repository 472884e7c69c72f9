"""The rows of the table: each module is one load, and what is read from what became of it."""
