"""One file a family: metadata and tensor names to the arguments and parameters of a model class.

Which class rotates which rows together, which norms are stored plus one and where a family hides a
constant was read off llama.cpp's converters and graphs and mlx-lm's classes, and is tested against
llama.cpp's own logits (`tests/models/test_architectures.py`).
"""

from collections.abc import Callable, Mapping

from akunu_py.gguf.architectures import (
    afmoe,
    apertus,
    arcee,
    bailing,
    cohere,
    deepseek,
    deepseek_v1,
    dots,
    ernie,
    exaone,
    falcon_h1,
    gemma,
    glm,
    glm_moe,
    gpt,
    gpt_oss,
    granite,
    granite_hybrid,
    hunyuan,
    hunyuan_moe,
    internlm,
    kimi_linear,
    lfm2,
    llama,
    llama4,
    mamba,
    mimo,
    minicpm,
    minicpm3,
    minimax,
    mistral,
    nemotron,
    nemotron_h,
    olmo,
    olmoe,
    phi,
    qwen,
    qwen_linear,
    seed_oss,
    smollm,
    stablelm,
    starcoder,
)
from akunu_py.gguf.keys import Keys
from akunu_py.gguf.plan import ModelPlan
from akunu_py.gguf.reader import TensorInfo

Reader = Callable[[Keys, Mapping[str, TensorInfo]], ModelPlan]

READERS: dict[str, Reader] = {
    **afmoe.READERS,
    **apertus.READERS,
    **arcee.READERS,
    **bailing.READERS,
    **cohere.READERS,
    **deepseek.READERS,
    **deepseek_v1.READERS,
    **dots.READERS,
    **ernie.READERS,
    **exaone.READERS,
    **falcon_h1.READERS,
    **gemma.READERS,
    **glm.READERS,
    **glm_moe.READERS,
    **gpt.READERS,
    **gpt_oss.READERS,
    **granite.READERS,
    **granite_hybrid.READERS,
    **hunyuan.READERS,
    **hunyuan_moe.READERS,
    **internlm.READERS,
    **kimi_linear.READERS,
    **lfm2.READERS,
    **llama.READERS,
    **llama4.READERS,
    **mamba.READERS,
    **mimo.READERS,
    **minicpm.READERS,
    **minicpm3.READERS,
    **minimax.READERS,
    **mistral.READERS,
    **nemotron.READERS,
    **nemotron_h.READERS,
    **olmo.READERS,
    **olmoe.READERS,
    **phi.READERS,
    **qwen.READERS,
    **qwen_linear.READERS,
    **seed_oss.READERS,
    **smollm.READERS,
    **stablelm.READERS,
    **starcoder.READERS,
}
"""`general.architecture` -> its reader."""
