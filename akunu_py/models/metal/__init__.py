"""Products of few rows by a kernel of akunu's own on Metal, where a race says that it is faster.

Nothing here was run on a Mac. Tests run the kernel's body on a CPU; whether it is right and fast on
a machine is found out there, by `choice`.
"""
