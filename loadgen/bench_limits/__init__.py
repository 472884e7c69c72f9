"""The real broker's own limits beside Sluice's, in one run: `python -m loadgen.bench_limits`."""
