"""`akunu chat`: a conversation in the terminal."""

from akunu_py.cli.chat.command import chat

__all__ = ["chat"]
