"""Who may pass how much: tokens, streams and an injected clock. No I/O."""
