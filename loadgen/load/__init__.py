"""The load generator: official clients offer a scenario's load, an independent receiving end counts what arrives."""
