"""/v1/responses: OpenAI's newer format, the only one that Codex speaks."""
