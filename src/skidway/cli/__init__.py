"""The command line: one module per command, loaded only when it is called."""
