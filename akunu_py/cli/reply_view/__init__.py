"""How a reply is drawn: as it is in a pipe, as Markdown or by who drafted it on a terminal."""

from akunu_py.cli.reply_view.view import Reasoning, ReplyView, make_view

__all__ = ["Reasoning", "ReplyView", "make_view"]
