"""One partition on disk: segments, indexes, producer state and recovery, through `ports.Disk` only."""
