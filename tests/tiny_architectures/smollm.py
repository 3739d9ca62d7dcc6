"""SmolLM 3."""

from tiny_architectures.builder import TinyModel, tiny, yarn
from tiny_architectures.llama import llama_model


@tiny("smollm3")
def smollm3(model: TinyModel) -> None:
    """Five layers, of which the fourth does not rotate."""
    llama_model(model, tied=True, layers=5, rope_base=5000000.0, rope__dimension_count=16)


@tiny("smollm3-yarn", "smollm3")
def smollm3_yarn(model: TinyModel) -> None:
    llama_model(model, layers=4, rope__dimension_count=16, **yarn(4.0, 64))
