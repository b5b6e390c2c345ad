"""Text in gram notation to a tree and back: reading, printing, formatting."""
