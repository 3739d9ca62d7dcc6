"""The HTTP server: four wire formats, and the worker that makes their replies."""
