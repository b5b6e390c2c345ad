"""How people meet gramercy."""
