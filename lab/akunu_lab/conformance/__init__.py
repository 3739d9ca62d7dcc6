"""Whether a server keeps the rules that coding agents rely on: `akunu conformance`."""
