"""The tools themselves, written once against the interface of an image. They cannot reach the guard."""
