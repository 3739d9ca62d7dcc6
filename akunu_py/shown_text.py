"""Text of files, models and users, made fit to be shown next to akunu's own."""

# No regular expression: errors are imported before an interrupt has its exit code.
_REPLACED = dict.fromkeys(
    (
        # Control characters but tab and newline.
        *range(0x09), *range(0x0B, 0x20), *range(0x7F, 0xA0),
        # Ends of lines and paragraphs, and what shows text in another order than it has (UAX #9).
        0x061C, 0x200E, 0x200F, *range(0x2028, 0x202F), *range(0x2066, 0x2070),
    ),
    "\N{REPLACEMENT CHARACTER}",
)  # fmt: skip


def harmless(text: str) -> str:
    """Replace control characters, escape codes and marks of direction among them.

    Newlines and tabs stay.
    """
    return text.translate(_REPLACED)


def one_line(text: str) -> str:
    """Return a text as one harmless line, whatever ends its lines."""
    return harmless(" ".join(text.splitlines()))
