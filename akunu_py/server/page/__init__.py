"""`GET /`: a chat for a browser, one HTML file that needs nothing from elsewhere.

`POST /render` reads Markdown for it.

Its style and scripts are files of this folder, sent without comments and indentation.
The policy that comes with it allows these texts by their hashes and requests to this server, and
nothing else: text of a model that were to become markup could neither run nor load anything.
"""

import base64
import hashlib
import re
from functools import cache
from pathlib import Path

from starlette.requests import Request as HttpRequest
from starlette.responses import Response

_PART = re.compile(r"<(style|script)>@([\w.]+)</\1>")
_ASIDE = re.compile(r"^ *(?:/\*(?:(?!\*/).)*\*/\n|//[^\n]*\n)?", re.MULTILINE | re.DOTALL)


async def page(http: HttpRequest) -> Response:
    """Answer `GET /` and its worker; `HEAD /` is what clients send to see if a server is there."""
    if http.url.path != "/":
        return Response(_read("worker.js"), media_type="text/javascript")
    html, policy = _page()
    headers = {
        "content-security-policy": policy,
        "cross-origin-opener-policy": "same-origin",
        "cross-origin-resource-policy": "same-origin",
        "referrer-policy": "no-referrer",
        "cache-control": "no-cache",
    }
    return Response(html, headers=headers, media_type="text/html")


@cache
def _page() -> tuple[str, str]:
    """Return the page, with its parts in place, and its policy."""
    hashes: dict[str, list[str]] = {"style": [], "script": []}

    def part(match: re.Match[str]) -> str:
        kind, text = match[1], _ASIDE.sub("", _read(match[2]))
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        hashes[kind].append(f"'sha256-{digest}'")
        return f"<{kind}>{text}</{kind}>"

    html = _PART.sub(part, _read("page.html"))
    policy = (
        "default-src 'none'",
        "script-src " + " ".join(hashes["script"]),
        "style-src " + " ".join(hashes["style"]),
        "connect-src 'self'",
        "worker-src 'self'",
        "img-src data:",  # the icon
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types worker",  # whose one value is the worker's address
    )
    return html, "; ".join(policy)


def _read(name: str) -> str:
    return Path(__file__).with_name(name).read_text(encoding="utf-8")
