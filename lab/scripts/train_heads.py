#!/usr/bin/env python3
"""Train a prediction head for a model of the llama family, and write it as a side-car.

    python lab/scripts/train_heads.py collect --work-dir ~/akunu-head --tokens 300000 --minutes 60
    python lab/scripts/train_heads.py train   --work-dir ~/akunu-head --minutes 60
    python lab/scripts/train_heads.py measure --work-dir ~/akunu-head
    akunu generate --heads ~/akunu-head/head.safetensors "What is a tide?"

`collect` lets the model answer prompts, and keeps its replies and hidden states (about 1 kB a token
for a model of width 576). `train` fits one layer to them while the model itself stays frozen, and
writes WORK-DIR/head.safetensors; `--kind medusa` and `--kind blockwise` fit heads with a layer for
each token ahead, `--kind pass` (try `--rate 0.01`) a vector, `--kind eagle3` one layer that takes
the model's states between its layers, with a config.json beside it. The head guesses only the
tokens that are frequent in the replies, since the product with all others would be most of a guess.
`measure` tells how many guesses the model accepts on replies to prompts that were held out.

Each command stops after its minutes. The same command goes on where it stopped; to collect more,
give more tokens.

The prompts are made by rules from the Python standard library and reference of the running Python
(PSF-2.0) and from word lists of akunu's own. Everything that is learned was said by the model
itself.
"""

import argparse
import sys
import time
from pathlib import Path
from typing import get_args, get_type_hints

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(Path(__file__).parent), str(ROOT / "scripts")]

from akunu_py.cpu.blas import fix_threads, load_blas

load_blas()

from head_training.accepted import acceptances
from head_training.replies import Text, collect, read_replies
from head_training.training import Trainer, TrainingSettings, write_side_car
from mlx_lm.models.llama import Model as Llama

from akunu_py.models.heads import load_head
from akunu_py.models.load import LoadedModel, LoadOptions, load_model
from akunu_py.system.errors import AkunuError


def main() -> None:
    options = _parser().parse_args()
    try:
        # Half precision and quantized products are slow on a CPU.
        load = LoadOptions(weights="dense", compute_type="float32")
        loaded = load_model(options.model, load)
        if not isinstance(loaded.model, Llama):
            raise SystemExit(
                f"{loaded.description.name} is a {loaded.description.architecture} model; heads are "
                "trained for llama models only: give another --model"
            )
        if not loaded.tokenizer.has_chat_template:
            raise SystemExit(
                f"{loaded.description.name} has no chat template; give another --model"
            )
        fix_threads(options.threads)
        options.work_dir.mkdir(parents=True, exist_ok=True)
        options.run(options, loaded)
    except AkunuError as error:
        raise SystemExit(str(error)) from None


def run_collect(options: argparse.Namespace, loaded: LoadedModel) -> None:
    folder, end = options.work_dir / "replies", _end(options.minutes)
    count = collect(loaded.model, loaded.tokenizer, folder, options.tokens, end)
    print(f"{count} tokens of replies for training")


def run_train(options: argparse.Namespace, loaded: LoadedModel) -> None:
    texts = _replies(options, held_out=False)
    settings = TrainingSettings(
        kind=options.kind,
        depths=options.depths,
        epochs=options.epochs,
        rate=options.rate,
        vocabulary=options.draft_vocabulary,
        seed=options.seed,
    )
    checkpoint = options.work_dir / f"checkpoint-{options.kind}.safetensors"
    trainer = Trainer(loaded.model, loaded.tokenizer.end_ids, texts, settings, checkpoint)
    if options.begin_with:
        trainer.begin_with(load_head(loaded, options.begin_with))
    trainer.train(_end(options.minutes))
    path = _side_car(options)
    count = sum(len(text.ids) - text.prompt for text in texts)
    write_side_car(
        trainer.head,
        trainer.ids,
        path,
        {
            "model": loaded.description.name,
            "trained_on": f"{count} tokens of the model's own replies",
            "steps": f"{trainer.step} of {trainer.num_steps}",
        },
    )
    print(f"{path}: {trainer.step} of {trainer.num_steps} steps")


def run_measure(options: argparse.Namespace, loaded: LoadedModel) -> None:
    head = load_head(loaded, options.heads or _side_car(options))
    texts = _replies(options, held_out=True)
    for acceptance in acceptances(loaded.model, head, texts, options.depths):
        print(acceptance)


def _replies(options: argparse.Namespace, *, held_out: bool) -> list[Text]:
    texts = read_replies(options.work_dir / "replies", held_out=held_out)
    if not texts:
        raise SystemExit(
            f"{options.work_dir} has no replies {'held out' if held_out else 'to train on'}; collect "
            f"them first (one file in eight is held out): train_heads.py collect --work-dir "
            f"{options.work_dir}"
        )
    return texts


def _side_car(options: argparse.Namespace) -> Path:
    name = "head" if options.kind == "mtp" else options.kind
    return Path(options.work_dir, f"{name}.safetensors")


def _end(minutes: float) -> float:
    return time.monotonic() + 60 * minutes


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument(
        "--work-dir", type=Path, required=True, help="replies, checkpoint, side-car"
    )
    common.add_argument("--model", type=Path, help="GGUF file or MLX folder; default: akunu's own")
    common.add_argument("--threads", type=_positive(int), default=1, help="of the BLAS; default: 1")
    kinds = argparse.ArgumentParser(add_help=False)
    kinds.add_argument(
        "--kind",
        choices=get_args(get_type_hints(TrainingSettings)["kind"]),
        default="mtp",
        help="one layer that is asked again for each token (mtp), one of each token's own, or vectors",
    )
    timed = argparse.ArgumentParser(add_help=False)
    timed.add_argument("--minutes", type=_positive(float), default=30, help="default: 30")
    commands = parser.add_subparsers(required=True, metavar="collect|train|measure")

    adding = commands.add_parser("collect", parents=[common, timed], help="sample replies")
    adding.add_argument(
        "--tokens", type=_positive(int), default=300_000, help="of replies; default: 300000"
    )
    adding.set_defaults(run=run_collect)

    training = commands.add_parser("train", parents=[common, kinds, timed], help="train on them")
    defaults = TrainingSettings()
    training.add_argument("--epochs", type=_positive(int), default=defaults.epochs)
    training.add_argument(
        "--depths", type=_positive(int), default=defaults.depths, help="tokens ahead; default: 3"
    )
    training.add_argument("--rate", type=_positive(float), default=defaults.rate)
    training.add_argument(
        "--draft-vocabulary",
        type=_positive(int),
        default=defaults.vocabulary,
        metavar="N",
        help="guess the N tokens most frequent in replies; default: 8192",
    )
    training.add_argument("--begin-with", type=Path, help="an mtp head that was trained before")
    training.add_argument("--seed", type=int, default=defaults.seed)
    training.set_defaults(run=run_train)

    measuring = commands.add_parser(
        "measure", parents=[common, kinds], help="acceptance by position"
    )
    measuring.add_argument("--heads", type=Path, help="default: that of the working folder")
    measuring.add_argument("--depths", type=_positive(int), default=4, help="default: 4")
    measuring.set_defaults(run=run_measure)
    return parser


def _positive(kind: type) -> type:
    """Return a reader of a number above 0, for argparse."""

    def read(text: str) -> float:
        value = kind(text)
        if not 0 < value < float("inf"):
            raise argparse.ArgumentTypeError(f"{text!r} is not a number above 0")
        return value

    read.__name__ = kind.__name__
    return read


if __name__ == "__main__":
    main()
