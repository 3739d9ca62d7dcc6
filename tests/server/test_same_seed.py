"""The same seed gives the same tokens over HTTP: alone, four at once, cold, warm, with drafts."""

from concurrent.futures import ThreadPoolExecutor

import pytest
from agent_engine import agent_engine, readable
from engine_server import serving

from akunu_py.values.generation_config import GenerationConfig

CODE = "def total(values):\n    total = 0\n    for value in values:\n        total += value\n"
PROMPTS = [CODE * 2, CODE * 2 + "    return", CODE + "print(total([1, 2]))\n" + CODE, CODE * 3]
OPTIONS = {"max_tokens": 24}


def figure(server, name):
    lines = server.get("/metrics").text.splitlines()
    return next(float(line.split()[1]) for line in lines if line.startswith(f"{name} "))


@pytest.mark.slow
@pytest.mark.parametrize("temperature", [0.0, 0.8])
@pytest.mark.parametrize("kind", ["attention", "window", "recurrent"])
def test_same_seed_same_tokens(kind, temperature, default_model):
    with agent_engine(kind, default_model) as engine:
        plain = GenerationConfig(
            temperature=temperature, logit_bias=readable(engine), drafter="none"
        )
        with engine.sibling() as other:
            expected = []
            for seed, prompt in enumerate(PROMPTS):
                other.reset()
                result = other.generate(prompt, plain, seed=seed, **OPTIONS)
                expected.append((result.text, len(result.token_ids)))

        def ask(seed):
            body = {"prompt": PROMPTS[seed], "seed": seed, **OPTIONS}
            reply = server.post("/v1/completions", body).json()
            return reply["choices"][0]["text"], reply["usage"]["completion_tokens"]

        for drafter in ("none", "auto"):
            config = GenerationConfig(
                temperature=temperature, logit_bias=plain.logit_bias, drafter=drafter,
                draft_budget="always",
            )  # fmt: skip
            with serving(engine, defaults=config, parallel=4) as server:
                cold = [ask(seed) for seed in range(4)]
                warm = [ask(seed) for seed in range(4)]
                assert cold == warm == expected
            served = serving(engine, defaults=config, parallel=4)
            with served as server, ThreadPoolExecutor(4) as pool:
                assert list(pool.map(ask, range(4))) == expected
                assert list(pool.map(ask, range(4))) == expected
                drafts = figure(server, "akunu_spec_decode_num_draft_tokens_total")
                assert (drafts > 0) == (drafter == "auto")
