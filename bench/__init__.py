"""The benchmarks: `python -m bench` runs each of them; the wheel and the image have none."""
