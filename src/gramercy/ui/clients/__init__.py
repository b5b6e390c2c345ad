"""Configuration of MCP clients: where each keeps its settings, and how they are changed."""
