"""The Agent Client Protocol: agents in editors."""
