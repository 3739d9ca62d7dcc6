"""Models that are tables, and what is measured on them, for the tests of `akunu bench alpha`."""

from pathlib import Path
from types import SimpleNamespace

import numpy as np
from bench.bench_fakes import reply

from akunu_lab.alpha.measure import measure_setting
from akunu_lab.alpha.texts import MeasuredText
from akunu_py.bench.workloads import Prompt

P = (0.5, 0.25, 0.25)
Q = (0.25, 0.5, 0.25)


class Toy:
    """A model whose distribution depends on the last token alone; `rows[token]` is it."""

    def __init__(self, rows, *, context=1000, texts=None, end=None):
        self.rows = np.array(rows, dtype=np.float64)
        self.vocabulary_size = self.rows.shape[1]
        self.context = context
        self.end = end
        names = [f"t{index}" for index in range(self.vocabulary_size)]
        self.tokenizer = SimpleNamespace(
            has_chat_template=False,
            encode=lambda text, parse_special=False: [int(letter) for letter in text],
            token_texts=lambda: names if texts is None else texts,
        )
        self.description = SimpleNamespace(
            path=Path("toy.gguf"), name="toy [bold]", architecture="toy", parameters=1,
            weights="dense", context=context,
        )  # fmt: skip
        self.draft_model = None
        self.asked = []
        self.fed = []

    def __enter__(self):
        return self

    def __exit__(self, *_error):
        pass

    def generate(self, prompt, config=None):
        """Greedy at 0; else tokens by their number, position and seed: any stream will do."""
        ids = list(prompt)
        self.asked.append((len(ids), config.max_tokens, config.seed))
        stopped = False
        while len(ids) - len(prompt) < config.max_tokens and not stopped:
            likeliest = int(self.rows[ids[-1] % len(self.rows)].argmax())
            drawn = (len(ids) * 7 + config.seed * 3) % self.vocabulary_size
            ids.append(likeliest if config.temperature == 0 else drawn)
            stopped = ids[-1] == self.end
        made = reply(ids[len(prompt) :], 1.0)
        return SimpleNamespace(
            token_ids=made.token_ids, finish_reason="stop" if stopped else "length"
        )

    def logits(self, token_ids, start=0):
        assert len(token_ids) <= self.context
        assert 0 <= start < len(token_ids)
        self.fed.append(list(token_ids))
        with np.errstate(divide="ignore"):
            return np.log(self.rows[np.array(token_ids[start:]) % len(self.rows)]).astype(
                np.float32
            )


def measured(source, *, rows=(P,), temperature=1.0, lenience=(), texts=None):
    texts = texts or [MeasuredText("a", (0, 1), (2, 0, 1))]
    setting = measure_setting(
        Toy(rows), texts, [source], temperature=temperature, lenience=lenience
    )
    return setting.sources[0]


def raw(name, text, category="edit"):
    return Prompt(name, category, "raw", text)
