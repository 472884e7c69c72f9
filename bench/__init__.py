"""The benchmarks: `python -m bench WHAT` runs one; the wheel and the image have none."""
