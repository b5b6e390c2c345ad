"""Confine a process with the kernel's own means. Runs by itself, with the standard library alone."""
