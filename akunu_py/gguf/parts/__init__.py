"""What architectures are made of: sizes and plan, names, attention, experts, state spaces.

A module a topic. Readers call them by it: `rope.scaling(model)`, `experts.stacks(...)`.
"""
