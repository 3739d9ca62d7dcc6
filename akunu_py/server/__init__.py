"""The server: wire formats over HTTP, the worker that makes replies, and its cache of prompts."""
