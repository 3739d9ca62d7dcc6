"""The formats of requests: their paths, a smallest body each, and the shape of their errors."""

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
MESSAGES, RESPONSES = "/v1/messages", "/v1/responses"
OLLAMA, GENERATE = "/api/chat", "/api/generate"
HI = [{"role": "user", "content": "Hi"}]
BODIES = {
    CHAT: {"messages": HI},
    COMPLETIONS: {"prompt": "Hi"},
    MESSAGES: {"messages": HI, "max_tokens": 5},
    RESPONSES: {"input": "Hi"},
    OLLAMA: {"messages": HI, "stream": False},
    GENERATE: {"prompt": "Hi", "stream": False},
}


def error_of(response, path=CHAT):
    """The error of a response, in the shape of the path's API."""
    body = response.json()
    if path.startswith(MESSAGES):
        assert body["type"] == "error"
        assert body["request_id"].startswith("req_")
        assert {"type", "message"} == body["error"].keys()
    elif path.startswith("/api/"):
        assert body.keys() == {"error"}
        body = {"error": {"message": body["error"]}}
    else:
        assert {"message", "type", "param", "code"} == body["error"].keys()
    assert body["error"]["message"]
    return body["error"]


def refused(server, path, body, status=400):
    """The error of a request that the server refuses, without asking the backend."""
    response = server.post(path, body)
    assert response.status_code == status, response.text
    assert not server.backend.requests
    return error_of(response, path)
