"""Makes text of files, models and users safe to show next to akunu's own."""

# Without the slow import of re: errors are imported before interrupts have their exit code.
_REPLACED = dict.fromkeys(
    (
        # Control characters except tab and newline.
        *range(0x09), *range(0x0B, 0x20), *range(0x7F, 0xA0),
        # Ends of lines and paragraphs, and characters that reorder text when shown (UAX #9).
        0x061C, 0x200E, 0x200F, *range(0x2028, 0x202F), *range(0x2066, 0x2070),
    ),
    "\N{REPLACEMENT CHARACTER}",
)  # fmt: skip


def harmless(text: str) -> str:
    """Replace control characters, including escape codes and marks of direction.

    Newlines and tabs stay.
    """
    return text.translate(_REPLACED)


def one_line(text: str) -> str:
    """Return a text as one harmless line, whatever its line separators."""
    return harmless(" ".join(text.splitlines()))


def size_text(size: float) -> str:
    """Return bytes as people read them, in powers of 1000."""
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} TB"
