"""One model on several machines; each of its processes is a rank, and rank 0 makes the replies.

    link       rank 0's connection to every other rank: commands, keep-alives
    passes     rank 0 announces every pass and rollback; the others do the same with their part
    comparison what must be the same on all ranks, and a prompt compared with one model
    start      joins the ranks, loads a rank's part, and follows rank 0

A pass costs one command, one collective that hands out its token ids, and the collectives of
mlx-lm's class. Ids are chosen by rank 0 alone, so ranks cannot come apart at a near-tie.
"""
