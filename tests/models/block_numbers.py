"""Heads that guess blocks, computed in numpy from the published formulas.

In float64, all rows at once, without a cache; nothing of akunu's classes but their weights' names.
"""

import numpy as np
from eagle_heads import llama3
from prediction_heads import rms, rotated, silu, softmax

EPS = 1e-5


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


class Numbers:
    """The weights of a head, by their published names, and how it guesses."""

    def __init__(self, tensors, form, embedding, output, *, scaled=False, group=1, candidates=0):
        self._all = {name: np.array(array, np.float64) for name, array in tensors.items()}
        self._form, self._group, self._candidates = form, group, candidates
        self._embedding = self._all.get("embed_tokens.weight", embedding)
        output = self._all.get("lm_head.weight", output)
        self.ids = np.arange(len(embedding))
        if "d2t" in self._all:
            self.ids = self._all["d2t"].astype(int) + np.arange(len(self._all["d2t"]))
            output = output if len(output) == len(self.ids) else output[self.ids]
        self._output = output
        self._frequencies = 5000.0 ** (-np.arange(8) / 8)
        if scaled:
            self._frequencies = llama3(self._frequencies)

    def rows(self, states, known):
        """States [m, H] after the last norm, of the rows that guess, behind states [n, W]."""
        form, w = self._form, self._all
        features = rms(states @ w["fc.weight"].T, w["hidden_norm.weight"], EPS)
        ids = [*known, *[form.mask] * (form.size - len(known))]
        x = form.embedding_scale * self._embedding[ids]
        for number in range(2):
            at = f"layers.{number}."
            layer = {n.removeprefix(at): a for n, a in w.items() if n.startswith(at)}
            inner = rms(x, layer["input_layernorm.weight"], EPS)
            before, behind = self._convolutions(layer, "attention_conv", inner)
            x = x + behind(self._attention(layer, number, features, before(inner)))
            inner = rms(x, layer["post_attention_layernorm.weight"], EPS)
            before, behind = self._convolutions(layer, "mlp_conv", inner)
            inner = before(inner)
            gate, up = (inner @ layer[f"mlp.{name}_proj.weight"].T for name in ("gate", "up"))
            x = x + behind((silu(gate) * up) @ layer["mlp.down_proj.weight"].T)
        return rms(x, w["norm.weight"], EPS)[len(known) - form.last_guesses :]

    def _attention(self, layer, number, features, inner):
        form, rows, size = self._form, len(features), len(inner)

        def projected(name, x):
            found = x @ layer[f"self_attn.{name}.weight"].T
            return found + layer.get(f"self_attn.{name}.bias", 0.0)

        joined = np.concatenate([features, inner])
        q, k, v = (projected(f"{name}_proj", joined).reshape(rows + size, -1, 16) for name in "qkv")
        angles = np.arange(rows + size)[:, None, None] * self._frequencies
        q = rotated(rms(q, layer["self_attn.q_norm.weight"], EPS), angles)[rows:]
        k = rotated(rms(k, layer["self_attn.k_norm.weight"], EPS), angles)
        # Two heads of queries share one of keys.
        k, v = k.repeat(2, axis=1), v.repeat(2, axis=1)
        scores = np.einsum("ihd,jhd->hij", q, k) / 4.0
        for i in range(size):
            for j in range(rows + size):
                window = form.windows[number]
                far = window is not None and j < rows and rows + i - j >= window
                if far or (form.causal[number] and j > rows + i):
                    scores[:, i, j] = -np.inf
        attended = np.einsum("hij,jhd->ihd", softmax(scores), v).reshape(size, -1)
        return projected("o_proj", attended)

    def _convolutions(self, layer, name, inner):
        if f"{name}.base_kernel" not in layer:
            return (lambda y: y,) * 2
        base = layer[f"{name}.base_kernel"]
        taps, width = base.shape[1:]
        made = inner @ layer[f"{name}.kernel_projection.weight"].T
        made = made.reshape(len(inner), 2, taps, width // self._group)

        def convolution(side):
            def convolved(y):
                out = np.zeros_like(y)
                for i in range(len(y)):
                    for tap in range(min(taps, i + 1)):
                        for c in range(width):
                            kernel = base[side, tap, c] + made[i, side, tap, c // self._group]
                            out[i, c] += kernel * y[i - tap, c]
                return out

            return convolved

        return convolution(0), convolution(1)

    def logits(self, rows):
        """Logits [m, n] of the n tokens that it guesses, each row by itself."""
        found = rows @ self._output.T * self._form.multiplier
        cap = self._form.cap
        return found if cap is None else np.tanh(found / cap) * cap

    def path(self, rows, before):
        """The logits of all tokens for each row, and its confidence, behind the tokens before."""
        w, memory, found = self._all, 0.0, []
        for row, base, token in zip(rows, self.logits(rows), before, strict=True):
            logits, chance, vector = base, None, np.zeros(0)
            if "candidate_selector.successor_codebook" in w:
                at = "candidate_selector."
                g = w[f"{at}hidden_projection.weight"] @ row
                scores = base + w[f"{at}successor_codebook"] @ (
                    g * w[f"{at}predecessor_codebook"][token]
                )
                best = np.argsort(-base)[: self._candidates]
                logits = np.full_like(base, -np.inf)
                logits[best] = scores[best]
            if "markov_head.markov_w1.weight" in w:
                at = "markov_head."
                vector = taken = w[f"{at}markov_w1.weight"][token]
                if f"{at}gate_proj.weight" in w:
                    gate = w[f"{at}gate_proj.weight"] @ np.concatenate([row, vector])
                    taken = sigmoid(gate + w[f"{at}gate_proj.bias"]) * vector
                if f"{at}joint_proj.weight" in w:
                    memory = memory + np.zeros_like(vector)
                    joined = w[f"{at}joint_proj.weight"] @ np.concatenate([memory, vector, row])
                    g, c, o = np.split(joined + w[f"{at}joint_proj.bias"], 3)
                    memory = sigmoid(g) * memory + (1 - sigmoid(g)) * np.tanh(c)
                    taken = np.tanh(o)
                logits = base + w[f"{at}markov_w2.weight"] @ taken
            if "confidence_head.proj.weight" in w:
                weight = w["confidence_head.proj.weight"][0]
                joined = np.concatenate([row, vector])[: len(weight)]
                chance = sigmoid(weight @ joined + w["confidence_head.proj.bias"][0])
            every = np.full(len(self._embedding), -np.inf)
            every[self.ids] = logits
            found.append((every, chance))
        return found
