"""`lhkit serve`: the server process, and the command line that it prints."""
