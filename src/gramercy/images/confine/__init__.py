"""Confine a process with the kernel's own means. Runs standalone, with the standard library alone."""
