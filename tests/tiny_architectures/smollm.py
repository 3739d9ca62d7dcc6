"""SmolLM 3."""

from tiny_architectures.builder import TinyModel, tiny
from tiny_architectures.llama import llama_blocks


@tiny("smollm3")
def smollm3(model: TinyModel) -> None:
    """Five layers, of which the fourth does not rotate."""
    model.sizes(layers=5, rope_base=5000000.0)
    model.key("rope.dimension_count", 16)
    model.frame(64, tied=True, std=0.3)
    llama_blocks(model, layers=5)


@tiny("smollm3-yarn", "smollm3")
def smollm3_yarn(model: TinyModel) -> None:
    model.sizes(layers=4)
    model.keys(
        rope__dimension_count=16, rope__scaling__type="yarn", rope__scaling__factor=4.0,
        rope__scaling__original_context_length=64,
    )  # fmt: skip
    model.frame(64)
    llama_blocks(model, layers=4)
