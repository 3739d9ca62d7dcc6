"""Studies: measurements that are kept item by item, and go on where they were interrupted."""
