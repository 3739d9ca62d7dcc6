"""A model measured on this machine: `akunu bench machine`."""
