"""The command line: one thin file per command. It parses, calls, prints; heavy imports stay inside functions."""
