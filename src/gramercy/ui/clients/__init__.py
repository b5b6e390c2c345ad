"""How MCP clients are told of a server: where each keeps its settings, and how they are changed."""
