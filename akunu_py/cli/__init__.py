"""The command line: a file a command; each parses, calls and prints."""
