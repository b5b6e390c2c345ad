"""Type signatures: what a path of typed nodes says about the arguments of a tool."""
