"""Decide whether a call may run, and run it: policy, approval, deadlines, results, metrics, journal."""
