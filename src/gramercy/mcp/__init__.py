"""The Model Context Protocol: an engine without I/O, and thin transports around it."""
