"""The command line. Data goes to standard output, everything else to standard error."""
