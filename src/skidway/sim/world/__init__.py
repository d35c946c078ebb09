"""A simulated machine room: events on virtual time, network, disks, hosts."""
