"""Tool calls: their format in a chat template, a parser and a grammar for it."""
