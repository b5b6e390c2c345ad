"""Live images: SBCL and CPython processes with time travel. This package knows no tools and no guard."""
