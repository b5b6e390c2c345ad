"""The gram room: text to pattern to types to JSON Schema and back, without any input or output."""
