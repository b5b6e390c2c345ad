"""Files that travel in time: what paths of a project held, what changed them, and the way back."""
