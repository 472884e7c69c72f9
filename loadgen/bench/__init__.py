"""The data path beside a forwarder that reads nothing, in one run: `python -m loadgen.bench` (`make bench`)."""
