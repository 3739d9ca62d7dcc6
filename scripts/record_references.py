#!/usr/bin/env python3
"""Record what llama.cpp computes, as golden files that tests compare akunu with.

    python -m pip install --group references       once; pip 25.1 or newer
    python scripts/record_references.py quantizations [TYPE ...]
    python scripts/record_references.py architectures [NAME ...]
    python scripts/record_references.py embeddings [NAME ...]
    python scripts/record_references.py trained [MODEL ...] [--threads N]
    python scripts/record_references.py vocabularies [--learn] [--real FOLDER]

scripts/references has a module for each, which says what the files hold; tests/golden/README.md says which tests
read them. Without names everything of its kind is recorded. All but `trained` compute with one thread, so that
another run writes the same numbers.

`trained` records the models in models/: the two that ship with akunu, and the default model once
`akunu models pull smollm2` has fetched it. `vocabularies` reads `--real` vocabularies from llama.cpp's own
ggml-vocab-NAME.gguf, which are not part of the project; `--learn` makes the small ones anew, whose tokens
follow this repository's pages.
"""

import argparse
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests"), str(ROOT / "tests" / "tokenizers")]


def quantizations(options: argparse.Namespace) -> None:
    from references.quantizations import record

    record(options.names)


def architectures(options: argparse.Namespace) -> None:
    from references.architectures import record

    record(options.names)


def embeddings(options: argparse.Namespace) -> None:
    from references.embeddings import record

    record(options.names)


def trained(options: argparse.Namespace) -> None:
    from references.trained_models import record
    from shared_files import PATHS
    from trained_references import GOLDEN

    for name in options.names or PATHS:
        if not PATHS[name].is_file():
            print(f"{name}: {PATHS[name]} is absent", file=sys.stderr)
            continue
        print(name)
        record(PATHS[name], GOLDEN / f"{name}.npz", options.threads)


def vocabularies(options: argparse.Namespace) -> None:
    from references import vocabularies

    if options.learn:
        vocabularies.learn()
    vocabularies.record_small()
    vocabularies.record_made_up()
    if options.real:
        vocabularies.record_real(options.real)


def known_names(kind: str) -> list[str]:
    if kind == "quantizations":
        from references.quantizations import NAMES

        return list(NAMES)
    if kind == "architectures":
        from tiny_architectures import BUILDERS

        return sorted(BUILDERS)
    if kind == "embeddings":
        from references.embeddings import NAMES

        return list(NAMES)
    from shared_files import PATHS

    return list(PATHS)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(required=True, dest="kind")
    for function in (quantizations, architectures, embeddings, trained):
        command = commands.add_parser(function.__name__)
        command.set_defaults(run=function)
        command.add_argument("names", nargs="*", metavar="NAME")
        if function is trained:
            command.add_argument("--threads", type=int, default=2)
    command = commands.add_parser("vocabularies")
    command.set_defaults(run=vocabularies)
    command.add_argument("--learn", action="store_true")
    command.add_argument("--real", type=Path, metavar="FOLDER")
    options = parser.parse_args()
    if unknown := set(getattr(options, "names", ())) - set(
        known_names(options.kind) if getattr(options, "names", ()) else ()
    ):
        parser.error(f"{options.kind} has nothing called {', '.join(sorted(unknown))}")
    try:
        options.run(options)
    except RuntimeError as error:
        sys.exit(f"record_references: {error}")


if __name__ == "__main__":
    main()
