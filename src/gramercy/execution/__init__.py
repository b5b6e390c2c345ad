"""May it run, and how: policy, approval, deadlines, results, metrics, journal. Knows no particular tool."""
