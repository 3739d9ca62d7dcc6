"""One way to run a pass: rows of any number of texts, each with its place and what it follows.

    plan         which rows a pass has: tokens, caches, and for a tree the row that each follows
    trees        which row of a draft follows which, and the masks of that
    caches       what stands for the caches of all texts while a model is called
    seams        the only place that puts anything in the way of mlx-lm's code, at load, once
    forward      runs a plan
    trials       whether passes of a kind give what plain ones give, tried on throwaway caches
    tree_trials  the same for trees, tried behind a text

A model is called with its rows as a batch of texts of one row each, [rows, 1]. That is how mlx-lm
decodes several texts itself, so its classes turn each row by an offset of its own, and take their
paths for one row. What a row sees of other rows is decided where a cache is used, in three kinds of
functions: attention, steps of a state, and windows of a convolution.
"""
