"""What the image begins with."""

import statistics  # noqa: F401
