"""The real broker's own publish limits beside Sluice's, in one run: `python -m loadgen.bench_limits`."""
