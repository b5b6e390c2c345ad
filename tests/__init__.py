"""The tests; a package, so that what several of them use can be imported."""
