"""The journal: what remembers every call, who decided about it, and what became of it."""
