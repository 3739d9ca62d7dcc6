# Sets up the checkout's virtual environment; sourced by scripts/akunu and scripts/test with $root set.
# A stamp with the hash of both pyproject.toml makes every later call return at once.

find_python() {
    for candidate in ${PYTHON:-} python3 python3.14 python3.13 python3.12 python3.11 python; do
        if command -v "$candidate" >/dev/null 2>&1 &&
            "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
            printf '%s\n' "$candidate"
            return
        fi
    done
    echo "akunu needs Python 3.11 or newer; install it (https://www.python.org/downloads/)" >&2
    echo "or name one: PYTHON=/path/to/python3.12 $0" >&2
    return 1
}

# pip ARGUMENTS...: the environment's own, made where it is missing.
pip() {
    "$venv/bin/python" -m pip --version >/dev/null 2>&1 || "$venv/bin/python" -m ensurepip >/dev/null 2>&1 || {
        echo "akunu: $python cannot install packages; on Debian and Ubuntu: apt install python3-venv" >&2
        return 1
    }
    said=$("$venv/bin/python" -m pip --disable-pip-version-check --quiet "$@" 2>&1) || {
        # Without a line for each attempt to reach an index.
        printf '%s\n' "$said" | sed '/^WARNING: /d' >&2
        echo "akunu: the packages it needs cannot be installed; check the network, then try again" >&2
        return 1
    }
}

# with_uv ARGUMENTS...: the one on the PATH, or a package of the environment.
with_uv() {
    uv=$(command -v uv) || {
        uv="$venv/bin/uv"
        # A pip that is there already brings another in half of the time.
        [ -x "$uv" ] || "$python" -m pip --quiet --python "$venv/bin/python" install --no-compile pip uv 2>/dev/null ||
            pip install --no-compile uv 2>/dev/null || true
    }
    "$uv" pip install --quiet --python "$venv/bin/python" "$@"
}

# install ARGUMENTS...: with uv, which takes a tenth of pip's time, else with pip.
install() {
    # pip may know another index, so it has the last word. Python compiles what it imports.
    with_uv "$@" 2>/dev/null || {
        # Older versions do not know dependency groups.
        pip install --no-compile --upgrade "pip>=25.1"
        pip install --no-compile "$@"
    }
}

# ensure_environment run|test|lowest|alone: akunu and its laboratory; with what their tests need; that in the
# lowest versions that pyproject.toml allows; or without the laboratory. The last two lie beside the first.
ensure_environment() {
    venv="$root/.venv"
    case "$1" in lowest | alone) venv="$venv-$1" ;; esac
    wanted=$(cat "$root/pyproject.toml" "$root/lab/pyproject.toml" | cksum)
    # Through the interpreter: its link dangles where the Python it was made with is gone.
    if [ -x "$venv/bin/python" ] && [ -x "$venv/bin/akunu" ] && [ -f "$venv/.akunu-$1" ] &&
        [ "$(cat "$venv/.akunu-$1")" = "$wanted" ]; then
        return
    fi
    echo "akunu: setting up $venv (once)" >&2
    python=$(find_python)
    "$venv/bin/python" -c "" 2>/dev/null || "$python" -m venv --clear --without-pip "$venv"
    set -- "$1" --editable "$root"
    [ "$1" = alone ] || set -- "$@" --editable "$root/lab"
    [ "$1" = run ] || set -- "$@" --group "$root/pyproject.toml:dev"
    wish=$1
    shift
    # What is there already would count as wanted.
    if [ "$wish" = lowest ]; then with_uv --reinstall --resolution lowest-direct "$@"; else install "$@"; fi
    # While the model is fetched; whoever runs tests waits for them (tests/conftest.py).
    [ "$wish" != run ] || "$venv/bin/python" -m akunu_py.cpu.build --background </dev/null >/dev/null 2>&1 &
    for stamp in run "$wish"; do
        printf '%s' "$wanted" >"$venv/.akunu-$stamp"
    done
}
