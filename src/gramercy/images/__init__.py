"""What a live image is: SBCL and CPython processes with time travel. Knows no tools and no guard."""
