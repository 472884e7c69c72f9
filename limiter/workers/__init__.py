"""Limits over several processes: one quota server for each worker where the limits are, in each worker its client."""
