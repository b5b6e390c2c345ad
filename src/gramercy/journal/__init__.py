"""The journal records every call: who decided about it, how it ended, and what its result was."""
