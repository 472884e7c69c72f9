"""The rows of the table: a load each, its figures, and how it is measured."""
