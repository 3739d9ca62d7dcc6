"""Diagnosis for `akunu doctor`: facts about a machine, a self-test, and advice."""
