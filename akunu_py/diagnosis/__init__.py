"""What `akunu doctor` finds: facts about a machine, a self-test, and what to do about them."""
