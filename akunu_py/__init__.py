"""akunu: quantized language models on a Mac, faster and with the same output."""

__version__ = "0.1.0"
