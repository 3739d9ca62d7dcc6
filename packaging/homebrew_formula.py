#!/usr/bin/env python3
"""Write the Homebrew formula of a released akunu, for a tap.

    python packaging/homebrew_formula.py SDIST --url URL --homepage URL > akunu.rb

SDIST is the source distribution as it was built, URL where it can be fetched. The formula installs
akunu and its dependencies from wheels, with pip: from source, which homebrew-core asks for, MLX,
NumPy and tokenizers would take three compilers. Check the result where there is brew:

    brew style akunu.rb
    brew audit --new akunu
    brew install --build-from-source akunu
    brew test akunu
"""

import argparse
import hashlib
import re
import sys
import tomllib
from pathlib import Path

PYTHON = "3.13"
_SDIST = re.compile(r"akunu_py-(\d+(?:\.\d+)*)\.tar\.gz")
_URL = re.compile(r"https://[\w./~%+@:-]+")

_FORMULA = """\
class Akunu < Formula
  desc "Run language models faster, drafting tokens from text they have seen"
  homepage "{homepage}"
  url "{url}"
  sha256 "{sha256}"
  license "{license}"

  depends_on "python@{python}"

  on_macos do
    depends_on arch: :arm64
  end

  def install
    # Wheels of the dependencies, MLX's among them, with pip's own resolver.
    system "python{python}", "-m", "venv", libexec
    system libexec/"bin/python", "-m", "pip", "install", buildpath
    bin.install_symlink libexec/"bin/akunu"
    generate_completions_from_executable(bin/"akunu", "completion")
  end

  test do
    assert_match version.to_s, shell_output("#{{bin}}/akunu --version")
    reply = shell_output("#{{bin}}/akunu -q generate akunu-tiny --raw -p 'def add(a, b):' -n 8")
    refute_empty reply.strip
  end
end
"""


def formula(sdist: Path, url: str, homepage: str) -> str:
    """Return the text of the formula; raises ValueError for names and addresses it cannot take."""
    if (name := _SDIST.fullmatch(sdist.name)) is None:
        raise ValueError(f"{sdist.name} is not a source distribution such as akunu_py-0.1.0.tar.gz")
    for address in (url, homepage):
        if _URL.fullmatch(address) is None:
            raise ValueError(f"{address!r} is not an https address")
    if name[1] not in url:
        raise ValueError(f"{url} does not have the version {name[1]}, which brew reads from it")
    project = tomllib.loads(
        (Path(__file__).resolve().parents[1] / "pyproject.toml").read_text(encoding="utf-8")
    )["project"]
    return _FORMULA.format(
        homepage=homepage,
        url=url,
        sha256=hashlib.sha256(sdist.read_bytes()).hexdigest(),
        license=project["license"],
        python=PYTHON,
    )


def main() -> None:
    """Print the formula."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "sdist", type=Path, help="the source distribution, as built for the release"
    )
    parser.add_argument("--url", required=True, help="where it can be fetched")
    parser.add_argument("--homepage", required=True, help="the project's page")
    arguments = parser.parse_args()
    try:
        sys.stdout.write(formula(arguments.sdist, arguments.url, arguments.homepage))
    except (OSError, ValueError) as error:
        parser.error(str(error))


if __name__ == "__main__":
    main()
