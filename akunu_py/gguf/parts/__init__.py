"""Parts of architectures: sizes and plan, names, attention, experts, state spaces.

There is a module for each topic, such as `rope.scaling(model)` and `experts.stacks(...)`.
"""
