"""The shell around a node: sockets, files, clocks, threads, signals and settings of a real machine."""
