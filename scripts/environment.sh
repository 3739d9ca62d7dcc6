# Sets up the checkout's virtual environment; sourced by scripts/akunu and scripts/test with $root set.
# A stamp with the hash of pyproject.toml makes every later call return at once.

find_python() {
    for candidate in ${PYTHON:-} python3 python3.13 python3.12 python3.11 python; do
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
    stamp="$venv/.akunu-$1"
    wanted=$(cksum <"$root/pyproject.toml")
    if [ -x "$venv/bin/akunu" ] && [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$wanted" ]; then
        return
    fi
    echo "akunu: setting up $venv (once; a minute or two)" >&2
    python=$(find_python)
    [ -x "$venv/bin/python" ] || "$python" -m venv "$venv" || {
        echo "akunu: $python cannot make virtual environments; on Debian and Ubuntu:" >&2
        echo "  apt install python3-venv" >&2
        return 1
    }
    "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --upgrade "pip>=25.1"
    "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --editable "$root"
    if [ "$1" = test ]; then
        "$venv/bin/python" -m pip install --quiet --disable-pip-version-check \
            --group "$root/pyproject.toml:dev"
    fi
    printf '%s' "$wanted" >"$stamp"
}
