"""Rate limiting: token buckets, fair queuing and credit windows over streams, with an injected clock. No I/O."""
