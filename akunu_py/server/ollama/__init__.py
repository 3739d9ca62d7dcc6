"""Ollama's API: chats and texts as lines of JSON, and what its clients ask of models."""
