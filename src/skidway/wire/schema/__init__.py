"""One declarative module per API: its request, its response and their structs. The source of truth for layouts."""
