"""One file per API, its contract on top. A handler turns exceptions into codes; nothing below it knows codes."""
