"""Who multiplies few rows: on a pretended Metal, where MLX's CPU backend computes for the kernel."""

import os
from functools import partial
from types import SimpleNamespace

import mlx.core as mx
import numpy as np
import pytest
from family_models import build_family
from mlx import nn
from mlx_lm.models.base import scaled_dot_product_attention
from programs import python

from akunu_py.engine.engine import Engine
from akunu_py.models import attention, budget_memory, device, load
from akunu_py.models.budget_memory import cost_key
from akunu_py.models.layers import PlanesEmbedding, PlanesLinear
from akunu_py.models.load import load_model
from akunu_py.models.load_steps import finish
from akunu_py.models.metal import choice, few_rows, layers, race
from akunu_py.models.metal.race import SIZES, Raced
from akunu_py.system.errors import ConfigError

OUTS, COLS = 1024, 512
ATTENTIONS = choice._attentions

# The CPU backend rounds each sum to 16 bits, and takes minutes.
NUMBERS = [mx.float32, *([mx.float16, mx.bfloat16] if mx.metal.is_available() else [])]


class Metal:
    """The kernel's place and a clock: `mlx_s` and `own_s` give the seconds of a product by its rows."""

    def __init__(self):
        self.calls, self.now = [], 0.0
        self.mlx_s, self.own_s = (lambda rows: rows), (lambda rows: 1)
        self.spoil = lambda y: y

    def kernel(self):
        return self.run

    def run(self, inputs, template, grid, threadgroup, output_shapes, output_dtypes):
        x, w, scales, biases = inputs
        form = dict(template)
        rows, outs = output_shapes[0]
        assert (rows, form["T"], output_dtypes) == (len(x), x.dtype, [x.dtype])
        assert rows <= form["ROWS"]
        assert grid[1] * form["OUTPUTS"] >= outs
        assert (grid[0], threadgroup) == (32, (32, 2, 1))
        self.calls.append(rows)
        self.now += self.own_s(rows)
        single = [
            mx.quantized_matmul(
                row[None], w, scales, biases, group_size=form["GROUP"], bits=form["BITS"]
            )
            for row in x
        ]
        return [self.spoil(mx.concatenate(single))]

    def of_mlx(self, product, x, layer):
        self.now += self.mlx_s(len(x))
        return product(x, layer)


@pytest.fixture
def metal(monkeypatch, tmp_path):
    metal = Metal()
    monkeypatch.setenv("AKUNU_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(few_rows, "_kernel", metal.kernel)
    monkeypatch.setattr(race, "_of_mlx", partial(metal.of_mlx, race._of_mlx))
    monkeypatch.setattr(race, "_CHAIN_BYTES", 1)
    monkeypatch.setattr(choice, "race", partial(race.race, clock=lambda: metal.now))
    monkeypatch.setattr(choice, "_attentions", lambda model: {})
    monkeypatch.setattr(
        choice, "race_attention", partial(race.race_attention, clock=lambda: metal.now)
    )
    monkeypatch.setattr(race, "RACED", 20)
    return metal


def planes(kind):
    """Random planes of the form of Q6_K."""
    generator = np.random.default_rng(3)
    weight = mx.array(generator.integers(0, 2**32, (OUTS, COLS * 2 * 3 // 32), np.uint32))
    scales, biases = (
        mx.array(generator.standard_normal((OUTS, COLS // 16)).astype(np.float32)) for _ in range(2)
    )
    return kind(weight, scales, biases, bits=3, group_size=32, multipliers=(1.0, 0.125))


KINDS = {
    "linear": lambda: nn.QuantizedLinear(COLS, OUTS, bias=True, group_size=64, bits=4),
    "no bias": lambda: nn.QuantizedLinear(COLS, OUTS, bias=False, group_size=32, bits=8),
    "embedding": lambda: nn.QuantizedEmbedding(OUTS, COLS, group_size=64, bits=6),
    "planes": lambda: planes(PlanesLinear),
    "planes' embedding": lambda: planes(PlanesEmbedding),
}


def products(layer):
    """Products of 1 to 18 rows, and of four rows in two texts."""
    multiply = layer.as_linear if hasattr(layer, "as_linear") else layer
    x = mx.random.normal((18, COLS), key=mx.random.key(1))
    return [
        *(np.array(multiply(x[:rows])) for rows in range(1, 19)),
        np.array(multiply(x[:4].reshape(2, 2, COLS))),
    ]


@pytest.mark.parametrize("kind", KINDS)
def test_the_kernel_multiplies_the_rows_with_which_it_won(metal, kind):
    metal.mlx_s = lambda rows: rows if rows < 9 else 0.5
    layer = KINDS[kind]()
    expected, ids = products(layer), mx.arange(3)
    model = nn.Sequential(layer)
    found = finish(choice.choose_products(model))
    assert [text.partition(": ")[2] for text, _ in found] == ["akunu's for rows 2-8"]
    assert found[0][1].startswith("rows 1 2 4 5 8 9 12 16: MLX 1.00 2.00 4.00 5.00 8.00 0.50")
    metal.calls.clear()
    for one, other in zip(products(layer), expected, strict=True):
        assert one.shape == other.shape
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-3)
    assert metal.calls == [2, 3, 4, 5, 6, 7, 8, 4]
    # Numbers of two types are widened first, by MLX, and so are products with the matrix as it is.
    multiply = layer.as_linear if hasattr(layer, "as_linear") else layer
    assert multiply(mx.zeros((4, COLS), mx.float16)).dtype == mx.float32
    if "planes" in kind:
        assert layer._product(mx.zeros((4, OUTS)), transpose=False).shape == (4, 2 * COLS)
    assert len(metal.calls) == 8
    if hasattr(layer, "as_linear"):
        assert layer(ids).shape == (3, COLS)
    assert model.parameters().keys() == nn.Sequential(KINDS[kind]()).parameters().keys()


@pytest.mark.parametrize("number", NUMBERS, ids=str)
@pytest.mark.parametrize(
    "bits_and_group",
    [(1, 32), (1, 128), (2, 64), (3, 32), (4, 32), (4, 64), (5, 32), (6, 64), (8, 32)],
)
def test_each_form_passes_the_check(request, number, bits_and_group):
    """On a Mac the kernel itself, with outputs and columns that fill blocks and that do not."""
    if not mx.metal.is_available():
        request.getfixturevalue("metal")
    bits, group = bits_and_group
    generator = np.random.default_rng(7)
    for outs, cols in ((256, 1024), (301, 512 + group)):
        words = generator.integers(0, 2**32, (outs, cols * bits // 32), np.uint32)
        scales, biases = (
            mx.array(generator.standard_normal((outs, cols // group))).astype(number)
            for _ in range(2)
        )
        matrix = SimpleNamespace(
            weight=mx.array(words), scales=scales, biases=biases, bits=bits, group_size=group
        )
        assert race.race(few_rows.MatrixForm(outs, cols, bits, group), [matrix]).fault == ""


@pytest.mark.parametrize(
    "leave",
    [
        lambda: nn.QuantizedLinear(COLS, OUTS, group_size=32, bits=4, mode="mxfp4"),
        lambda: nn.QuantizedLinear(COLS, 64, group_size=32, bits=4),
        lambda: nn.QuantizedLinear(128, 4096, group_size=32, bits=4),
        lambda: nn.Linear(COLS, OUTS),
    ],
)
def test_other_layers_are_left_to_mlx(metal, leave):
    assert finish(choice.choose_products(nn.Sequential(leave()))) == ()
    assert not metal.calls


def refuse(y):
    raise RuntimeError("Unable to build metal library\nand more")


FAULTS = {
    "gives wrong values": lambda y: mx.zeros_like(y),
    "gives wrong values ": lambda y: mx.concatenate([y[:, :-1], y[:, -1:] * 1.2], axis=1),
    "gives wrong values  ": lambda y: y * mx.inf,
    "gives other bits with 1 rows": lambda y: y * (1 + 1e-5 * (len(y) == 1)),
    "gives other bits with 9 rows": lambda y: y * (1 + 1e-5 * (len(y) == 9)),
    "does not run: Unable to build metal library": refuse,
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_kernel_that_is_wrong_is_not_used(metal, fault):
    metal.spoil = FAULTS[fault]
    layer = KINDS["linear"]()
    found = finish(choice.choose_products(nn.Sequential(layer)))
    assert found[0][0].endswith(f"MLX's, since akunu's {fault.strip()}")
    assert found[0][1] == ""
    assert type(layer) is nn.QuantizedLinear


def test_a_row_alone_that_has_other_bits_is_found_whichever_it_is(metal):
    metal.spoil = lambda y: y * (1 + 1e-5 * (len(y) == 1 and len(metal.calls) > 12))
    ((text, _),) = finish(choice.choose_products(nn.Sequential(KINDS["linear"]())))
    assert text.endswith("since akunu's gives other bits to a row alone")


def test_a_gpu_that_gives_zeros_is_found(metal, monkeypatch):
    """Of the numbers that are drawn as well as of products."""
    monkeypatch.setattr(race.mx.random, "normal", lambda shape, **_: mx.zeros(shape))
    ((text, _),) = finish(choice.choose_products(nn.Sequential(KINDS["no bias"]())))
    assert text.endswith("since akunu's gives wrong values")


def test_rows_with_other_bits_than_mlx_s_single_row_take_single_rows_too(metal):
    """Or nothing, where that is slower: a row is the same with and without drafts."""
    metal.spoil = lambda y: y * (1 + 1e-5)
    ((text, _),) = finish(choice.choose_products(nn.Sequential(KINDS["linear"]())))
    assert text.endswith("akunu's for rows 1-16")
    choice.forget_races()
    metal.own_s = lambda rows: 1.1
    ((text, _),) = finish(choice.choose_products(nn.Sequential(KINDS["linear"]())))
    assert text.endswith(": MLX's")


def test_attention_in_parts_races_as_products_do(metal, monkeypatch):
    """MLX's kernel takes eight rows of two heads that share keys, and others take five times as long."""
    monkeypatch.setattr(choice, "_attentions", ATTENTIONS)
    monkeypatch.setattr(attention, "may_race", lambda: True)
    shape = (4, 2, 16, 16, mx.float32)
    for slow, rows in ((5, [*range(9, 17)]), (1, [])):

        def attend(queries, *rest, slow=slow):
            metal.now += slow if queries.shape[2] > 8 else 1
            return scaled_dot_product_attention(queries, *rest)

        monkeypatch.setattr(race, "attend", attend)
        choice.forget_races()
        ((text, costs),) = finish(choice.choose_products(build_family("llama")))
        said = "akunu's for rows 9-16" if rows else "MLX's"
        assert text == f"attention of 4 heads over 2, width 16 and 16, mlx.core.float32: {said}"
        assert costs.startswith(f"rows 1 2 4 5 8 9 12 16: MLX 1.00 1.00 1.00 1.00 1.00 {slow}.00")
        assert attention.won.pop(shape) == rows


def raced(lost=(), *, equal=True, ratio=1.0, **values):
    times = dict.fromkeys(SIZES, 1.0)
    ratios = {rows: ratio if rows in lost else 0.9 for rows in SIZES}
    return Raced(**({"equal": equal, "mlx_s": times, "own_s": times, "ratios": ratios} | values))


@pytest.mark.parametrize(
    ("lost", "rows"),
    [
        ((), [*range(2, 17)]),
        ((1,), [*range(2, 17)]),
        ((4,), [2, *range(5, 17)]),
        ((2, 4, 5, 8), [*range(9, 17)]),
        ((9,), [*range(2, 9), *range(12, 17)]),
        (SIZES, []),
    ],
)
def test_rows_between_two_sizes_need_both(lost, rows):
    assert raced(lost).own_rows() == rows
    assert raced(lost, equal=False, ratio=1.01).own_rows() == ([1, *rows] if rows else [])


def test_sizes_of_which_both_do_the_same_are_nobodys_loss():
    assert raced((1, 2, 4, 5), first=6).own_rows() == [*range(6, 17)]
    assert raced((4, 8), first=4).own_rows() == [5, *range(9, 17)]


def test_a_noisy_lead_is_no_lead(metal):
    """All rounds but one must show it."""
    rounds = iter(range(10**6))
    metal.own_s = lambda rows: 1.2 * rows if next(rounds) % 3 else 0.5 * rows
    ((text, _),) = finish(choice.choose_products(nn.Sequential(KINDS["linear"]())))
    assert text.endswith(": MLX's")


def test_races_are_remembered_until_they_are_forgotten(metal, tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(race, "_ROUNDS", 2)

    def chosen():
        metal.calls.clear()
        caplog.clear()
        text = finish(choice.choose_products(nn.Sequential(KINDS["linear"]())))
        assert bool(metal.calls) == ("once for each of their shapes" in caplog.text)
        return text, bool(metal.calls)

    first, ran = chosen()
    assert ran
    assert chosen() == (first, False)
    (path,) = (tmp_path / "products").iterdir()
    whole = path.read_bytes()
    spoilt = (
        b"", b"[]", whole[:-9], whole.replace(b'"4":', b'"3":'), whole.replace(b'"mlx_s":{', b'"a":{'),
        whole.replace(b'"1":1.0', b'"1":0.0'), whole.replace(b"float32", b"float16"),
        whole.replace(b'"macos":"', b'"macos":"1'), b"\xff" + whole,
    )  # fmt: skip
    for other in spoilt:
        assert other != whole
        path.write_bytes(other)
        assert chosen() == (first, True), other
    choice.forget_races()
    choice.forget_races()
    assert chosen() == (first, True)
    monkeypatch.setattr(choice.platform, "mac_ver", lambda: ("99.9", (), ""))
    assert chosen() == (first, True)


def test_a_long_race_goes_on_at_the_next_load(metal, monkeypatch):
    monkeypatch.setattr(choice, "_MOST_S", -1.0)
    model = nn.Sequential(KINDS["linear"]())
    assert finish(choice.choose_products(model))[0][0].endswith(
        "since akunu's was not measured yet"
    )
    monkeypatch.undo()


@pytest.fixture
def on_metal(metal, monkeypatch):
    """A Metal on which the matrices of a small model count."""
    monkeypatch.setattr(layers, "_LEAST_WEIGHTS", 1)
    monkeypatch.setattr(layers, "_LEAST_COLUMNS", 32)
    monkeypatch.setattr(load, "may_choose_products", lambda: True)
    return metal


def test_a_loaded_model_says_who_multiplies_and_replies_the_same(on_metal, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(load, "may_choose_products", lambda: False)
        plain = load_model(None)
        expected = Engine(plain).generate("the the the", max_tokens=24).token_ids
    loaded = load_model(None)
    assert loaded.description.products
    assert plain.description.products == ()
    on_metal.calls.clear()
    assert Engine(loaded).generate("the the the", max_tokens=24).token_ids == expected
    assert on_metal.calls
    keys = [
        cost_key(each.description, each.model, kv_bits=None, block_rows=None)["kernels"]
        for each in (plain, loaded)
    ]
    assert keys[0] == keys[1]  # on the CPU backend, whose kernels compute
    monkeypatch.setattr(budget_memory, "on_cpu", lambda: False)
    assert "akunu's for rows" in cost_key(
        loaded.description, loaded.model, kv_bits=None, block_rows=None
    )["kernels"]  # fmt: skip


def test_the_variable_is_checked_and_turns_it_off(monkeypatch):
    monkeypatch.setattr(device, "on_cpu", lambda: False)
    monkeypatch.setattr(mx.metal, "is_available", lambda: True)
    monkeypatch.delenv("AKUNU_METAL")
    assert device.may_choose_products()
    monkeypatch.setenv("AKUNU_METAL", "mlx")
    assert not device.may_choose_products()
    monkeypatch.setenv("AKUNU_METAL", "fast")
    with pytest.raises(ConfigError, match="AKUNU_METAL is 'fast'; give auto or mlx"):
        load_model(None)


def test_without_metal_nothing_of_it_is_imported():
    program = """
import sys
from akunu_py.engine.engine import Engine
Engine.load().generate("a", max_tokens=1)
sys.exit("akunu_py.models.metal" in sys.modules)
"""
    if mx.metal.is_available():
        pytest.skip("there is a Metal")
    known = {name: value for name, value in os.environ.items() if name != "AKUNU_METAL"}
    python("-c", program, env=known)
