"""What every room may need of the machine: files, settings, errors, text made safe to show."""
