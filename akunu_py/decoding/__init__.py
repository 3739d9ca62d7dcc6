"""The decode loop and what it is made of: pure functions on token ids."""
