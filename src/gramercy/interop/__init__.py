"""Our tools behind the interfaces of other agent libraries, so that their users get the guard."""
