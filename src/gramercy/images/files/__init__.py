"""Time travel for files: the past contents of paths in a project, their changes, and the way back."""
