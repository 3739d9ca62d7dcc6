"""What llama.cpp computes, recorded for the tests: the parts of scripts/record_references.py."""
