"""One limit over many processes: who may use which share of it, and until when. Values in, values out, no I/O."""
