"""The deterministic world: what `server/` is to a real machine, this package is to a simulated one."""
