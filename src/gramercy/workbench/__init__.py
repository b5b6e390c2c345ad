"""Where things are joined: sources of tools become registries."""
