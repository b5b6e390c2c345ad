"""The tools, written once against the interface of an image. They have no access to the guard."""
