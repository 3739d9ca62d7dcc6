"""The laboratory: speculative methods to study and measure, as a plug-in of akunu."""

__version__ = "0.1.0"
