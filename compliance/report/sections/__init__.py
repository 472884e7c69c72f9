"""The sections of the report, each made from its facts by pure functions."""
