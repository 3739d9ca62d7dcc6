"""Pictures of measurements: one a file, each reads a result and draws with matplotlib."""
