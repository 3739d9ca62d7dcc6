"""DFlash 2 and DSpark heads beside another program that runs them, gmlx, where it is installed.

`pip install --no-deps gmlx` into a place of its own, on PYTHONPATH, is enough. Its states, logits
and greedy paths are compared: test_dflash_heads.py compares ours with formulas.
"""

import mlx.core as mx
import numpy as np
import pytest
from dflash_heads import MASK, SIZES, random_dflash2, random_dspark
from family_models import build_family
from prediction_heads import parameters_of

drafter = pytest.importorskip("gmlx.spec.dflash_drafter")

CALLS = (11, 1, 4, 6, 2)
"""New rows of text before each block: fewer and more than a window."""


def peer_of(head, target, kind, **options):
    args, form = head.layers[0].args, head.form
    windows = [window for window in form.windows if window]
    config = drafter.DFlashConfig(**{
        **{name: getattr(args, name) for name in (
            "hidden_size", "intermediate_size", "num_attention_heads", "num_key_value_heads",
            "head_dim", "rms_norm_eps", "rope_theta", "max_position_embeddings")},
        "num_hidden_layers": 2, "vocab_size": 97, "block_size": form.size + form.last_guesses,
        "mask_token_id": MASK, "target_layer_ids": [layer - 1 for layer in head.takes],
        "num_target_layers": 4, "is_causal": form.causal[0],
        "layer_types": ["sliding_attention" if window else "full_attention" for window in form.windows],
        "sliding_window": windows[0] if windows else None,
        "output_multiplier": form.multiplier, "final_logit_softcapping": form.cap,
        "input_embedding_scale": form.embedding_scale, **options,
    })  # fmt: skip
    peer = kind(config)
    renamed = {name.replace("markov_head.", "").replace("confidence_head.proj", "conf_proj"): array
               for name, array in parameters_of(head).items()}  # fmt: skip
    own = {name for name, array in parameters_of(peer).items()}
    plain = {name.removesuffix(".weight") if name not in own else name: array
             for name, array in renamed.items()}  # fmt: skip
    peer.load_weights(list(plain.items()), strict=True)
    peer.reset(target)
    return peer


def rounds(head, peer):
    """Blocks of both behind the same states: ours first, and the states of the other's rows."""
    cache = head.make_cache()
    for call, rows in enumerate(CALLS):
        states = mx.random.normal((1, rows, head.width), key=mx.random.key(call))
        anchor = 5 * call + 3
        ours = head(states, mx.array([[*[0] * (rows - 1), anchor]]), cache)
        peer.append_context(states)
        block = peer._block_tokens(anchor, peer.config.block_size, mx.int32)
        yield anchor, ours, peer._draft_hidden(block)[:, 0 if head.form.last_guesses else 1 :]


def greedy(head, ours, anchor, barred=()):
    """The greedy tokens of a walk, its logits and its chances."""
    step, token, found = head.walk(ours), anchor, []
    for _ in range(ours.shape[1]):
        logits, chance = step(mx.array([token]))
        row = np.array(logits[0, 0])
        row[list(barred)] = -np.inf
        token = int(row.argmax())
        found.append((token, row, chance))
    return found


@pytest.mark.parametrize(
    ("windows", "causal"),
    [((None, None), False), ((9, 9), False), ((9, 9), True), ((None, 7), False)],
)
def test_dflash_2(windows, causal):
    target = build_family("llama")
    head = random_dflash2(target, windows=windows, causal=(causal, causal))
    peer = peer_of(
        head, target, drafter.DFlash2Drafter, conv_kernel_size=SIZES["taps"],
        conv_group_size=SIZES["group"], selector_rank=SIZES["rank"],
        selector_top_k=SIZES["candidates"],
    )  # fmt: skip
    for anchor, ours, theirs in rounds(head, peer):
        np.testing.assert_allclose(head.norm(ours), theirs, atol=1e-4)
        logits = peer._logits(theirs)[0]
        np.testing.assert_allclose(head.logits(ours)[0], logits, atol=1e-4)
        candidates, first, edges = peer.candidate_selector.lattice(
            theirs[0], logits, mx.array(anchor)
        )
        path = drafter.greedy_walk(candidates, first, edges).reshape(-1).tolist()
        assert [token for token, _, _ in greedy(head, ours, anchor)] == path


def test_dspark():
    target = build_family("llama")
    head = random_dspark(target, markov="vanilla")
    peer = peer_of(head, target, drafter.DSparkDFlashDrafter, markov_rank=12, confidence_head=True)
    peer._confidence_tau = 1e-9
    for anchor, ours, theirs in rounds(head, peer):
        np.testing.assert_allclose(head.norm(ours), theirs, atol=1e-4)
        rows, chances = peer.chain(theirs[0], peer._logits(theirs)[0], mx.array(anchor))
        # It never drafts the mask.
        found = greedy(head, ours, anchor, barred=[MASK])
        np.testing.assert_allclose(np.stack([row for _, row, _ in found]), rows, atol=1e-4)
        np.testing.assert_allclose([chance.item() for *_, chance in found], chances, atol=1e-5)
