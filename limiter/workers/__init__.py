"""Limits over several processes: one judge for each worker where the limits are, and in each worker its deputy."""
