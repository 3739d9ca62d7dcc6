"""Training a prediction head on a frozen model; `train_heads.py` is the program.

prompts   prompts made by rules from free text
replies   the model's own replies to them, with its hidden states, in files
unrolled  what a head computes for many places of a text and several depths at once
parallel  heads with a layer for each place: Medusa's and blockwise decoding's
eagle     EAGLE-3 heads, and the states between layers that they take
training  loss, optimizer, checkpoints
accepted  how many guesses the model accepts, by position
"""
