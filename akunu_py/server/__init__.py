"""Replies for several clients at once: a worker thread, and a cache of prompts."""
