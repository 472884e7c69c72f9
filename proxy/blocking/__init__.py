"""Blocking: rules that operators set at run time, and the connections and streams that they end or refuse."""
