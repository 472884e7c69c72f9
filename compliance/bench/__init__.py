"""How fast the job is beside Spark's own reading of the same files, and how it grows."""
