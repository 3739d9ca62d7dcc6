# Sets up the checkout's virtual environment; sourced by scripts/akunu and scripts/test with $root set.
# A stamp with the hash of pyproject.toml makes every later call return at once.

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

# ensure_environment run|test: the product alone, or with what its tests need.
ensure_environment() {
    venv="$root/.venv"
    wanted=$(cksum <"$root/pyproject.toml")
    # Through the interpreter: its link dangles where the Python it was made with is gone.
    if [ -x "$venv/bin/python" ] && [ -x "$venv/bin/akunu" ] && [ -f "$venv/.akunu-$1" ] &&
        [ "$(cat "$venv/.akunu-$1")" = "$wanted" ]; then
        return
    fi
    echo "akunu: setting up $venv (once; a minute or two)" >&2
    python=$(find_python)
    # An attempt that failed half-way leaves an interpreter without pip.
    "$venv/bin/python" -m pip --version >/dev/null 2>&1 || "$python" -m venv --clear "$venv" || {
        echo "akunu: $python cannot make virtual environments; on Debian and Ubuntu:" >&2
        echo "  apt install python3-venv" >&2
        return 1
    }
    if [ "$1" = test ]; then
        # Older versions of pip do not know dependency groups.
        "$venv/bin/python" -m pip --disable-pip-version-check --quiet install --upgrade "pip>=25.1"
        "$venv/bin/python" -m pip --disable-pip-version-check --quiet install --editable "$root" --group "$root/pyproject.toml:dev"
        printf '%s' "$wanted" >"$venv/.akunu-test"
    else
        "$venv/bin/python" -m pip --disable-pip-version-check --quiet install --editable "$root"
    fi
    # Rather now than when the first model is loaded; akunu does without them where they cannot be built.
    "$venv/bin/python" -c 'from akunu_py.cpu import load_kernels; load_kernels()' || true
    printf '%s' "$wanted" >"$venv/.akunu-run"
}
