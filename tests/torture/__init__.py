"""What tries to break the guarantees of the journal; `scripts/torture journal` runs all of it."""
