"""packaging/homebrew_formula.py: a formula of the given release, and refusals."""

import hashlib
from pathlib import Path

import pytest
from programs import python

SCRIPT = Path(__file__).resolve().parents[1] / "packaging" / "homebrew_formula.py"
URL = "https://example.org/akunu_py-0.1.0.tar.gz"


def written(sdist, url=URL, homepage="https://example.org/akunu"):
    return python(SCRIPT, sdist, "--url", url, "--homepage", homepage, code=None)


def test_a_formula_names_the_file_and_its_hash(tmp_path):
    sdist = tmp_path / "akunu_py-0.1.0.tar.gz"
    sdist.write_bytes(b"a release")
    text = written(sdist).stdout
    assert text.startswith("class Akunu < Formula\n")
    assert f'  url "{URL}"\n' in text
    assert f'  sha256 "{hashlib.sha256(b"a release").hexdigest()}"\n' in text
    assert '  license "MIT"\n' in text
    assert 'shell_output("#{bin}/akunu --version")' in text
    opened = sum(text.count(f"{word}\n") for word in (" do", "< Formula", "def install"))
    assert opened == sum(line.strip() == "end" for line in text.splitlines())
    # brew style: at most 80 characters, and the name is not repeated.
    (description,) = [line for line in text.splitlines() if line.startswith("  desc ")]
    assert len(description.split('"')[1]) <= 80


@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        ("other.tar.gz", {}, "is not a source distribution"),
        ("akunu_py-0.1.0.tar.gz", {"url": "http://example.org/0.1.0"}, "not an https address"),
        ("akunu_py-0.1.0.tar.gz", {"url": 'https://a/0.1.0"#{x}'}, "not an https address"),
        ("akunu_py-0.2.0.tar.gz", {}, "does not have the version 0.2.0"),
        ("akunu_py-0.1.0.tar.gz", {"homepage": "x"}, "not an https address"),
    ],
)
def test_what_cannot_be_a_release_is_refused(tmp_path, name, options, words):
    (tmp_path / name).write_bytes(b"")
    done = written(tmp_path / name, **options)
    assert done.returncode == 2
    assert words in done.stderr


def test_a_missing_file_is_explained(tmp_path):
    assert "No such file" in written(tmp_path / "akunu_py-0.1.0.tar.gz").stderr
