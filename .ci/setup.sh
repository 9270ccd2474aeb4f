#!/bin/sh
# Make the environment that a Makefile target needs:
#   site    .venv         rendering, checking, building and serving
#   test    .venv-test    the same with torch (CPU is enough), Triton, tests
#   record  .venv-record  recording, on a machine with an NVIDIA GPU
# `both` makes the first two at once.
# `browser` prints the Chromium that the tests and the still pictures use.
# PYTHON=... picks the interpreter, CHROMIUM=... the browser.
# An environment is finished when its file `complete` holds the key of what it
# was made from; any other is made anew.
set -eu
cd "$(dirname "$0")/.."

stop() {
    printf '%s\n' "$*" >&2
    exit 1
}

# install_or_stop REASON PACKAGES...: by apt where root may, else say what to type.
install_or_stop() {
    reason=$1
    shift
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
        echo "$reason; installing $*." >&2
        apt-get update -qq || true
        DEBIAN_FRONTEND=noninteractive \
            apt-get install -y -qq --no-install-recommends "$@" >/dev/null ||
            stop "apt-get could not install $*."
    else
        stop "$reason; on Debian or Ubuntu, type: sudo apt-get install -y $*"
    fi
}

find_python() {
    if [ -z "${PYTHON:-}" ] && ! command -v python3 >/dev/null; then
        install_or_stop "Python 3.11 or newer is needed" python3-venv
    fi
    for python in ${PYTHON:-python3 python3.14 python3.13 python3.12 python3.11}; do
        if "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
            2>/dev/null; then
            return
        fi
    done
    found=$("${PYTHON:-python3}" --version 2>&1) || found="${PYTHON:-python3} fails"
    stop "Python 3.11 or newer is needed ($found); where apt offers it, type:" \
        "sudo apt-get install -y python3.11-venv"
}

need_venv() {
    if ! "$python" -c 'import ensurepip, venv' 2>/dev/null; then
        install_or_stop "$python lacks its venv module" \
            "$(basename "$python")-venv"
    fi
}

need_browser() {
    # Each is run: Ubuntu's chromium-browser may be a stub that only says so.
    for browser in ${CHROMIUM:-chromium google-chrome google-chrome-stable chromium-browser}; do
        if "$browser" --version >/dev/null 2>&1; then
            return
        fi
    done
    if [ -n "${CHROMIUM:-}" ]; then
        stop "CHROMIUM=$CHROMIUM does not run."
    fi
    if grep -q '^ID=ubuntu' /etc/os-release 2>/dev/null; then
        if [ "$(uname -m)" != x86_64 ]; then
            stop "The tests need Chromium; type: sudo snap install chromium"
        fi
        stop "The tests need Chromium or Chrome, and Ubuntu's package is a" \
            "snap; type: wget -O /tmp/chrome.deb" \
            "https://dl.google.com/linux/direct/google-chrome-stable_current_amd64.deb" \
            "&& sudo apt-get install -y /tmp/chrome.deb"
    fi
    install_or_stop "The tests need Chromium" chromium fonts-dejavu-core
    browser=chromium
}

# The Node.js inside Playwright is linked to it; a minimal system lacks it.
need_libatomic() {
    if ! "$python" -c 'import ctypes; ctypes.CDLL("libatomic.so.1")' 2>/dev/null; then
        install_or_stop "Playwright needs libatomic" libatomic1
    fi
}

key() { # FILES...
    { cat "$@" .ci/setup.sh && "$python" -c 'import sys; print(sys.version, sys.prefix)' &&
        pwd; } | cksum
}

finished() { # DIRECTORY KEY
    [ "$(cat "$1/complete" 2>/dev/null)" = "$2" ] && "$1/bin/python" -c '' 2>/dev/null
}

install() { # DIRECTORY PIP-ARGUMENTS...
    into=$1
    shift
    [ -t 1 ] || set -- --quiet "$@"
    # What is imported is compiled then: half of torch never is.
    "$into/bin/python" -m pip --disable-pip-version-check install --no-compile "$@" ||
        stop "pip could not fill $into; its message is above."
}

environment() { # DIRECTORY FILES...
    directory=$1
    shift
    key=$(key "$@")
    if finished "$directory" "$key"; then
        return
    fi
    need_venv
    echo "Making $directory from $*"
    rm -rf "$directory"
    "$python" -m venv "$directory"
    for file; do
        set -- "$@" -r "$file"
        shift
    done
    install "$directory" "$@"
    echo "$key" >"$directory/complete"
}

need_gpu() {
    "$python" - <<'PYTHON' || stop \
        "No NVIDIA GPU answers on this machine; nothing was installed or written."
import ctypes, sys
try:
    cuda = ctypes.CDLL("libcuda.so.1")
except OSError:
    sys.exit(1)
count = ctypes.c_int()
sys.exit(bool(cuda.cuInit(0) or cuda.cuDeviceGetCount(ctypes.byref(count))) or not count.value)
PYTHON
}

# Triton builds a small C extension for the interpreter when it first launches.
need_compiler() {
    if [ -z "${CC:-}" ] && ! command -v gcc >/dev/null && ! command -v clang >/dev/null; then
        install_or_stop "Triton needs a C compiler" gcc libc6-dev
    fi
    header='import os, sys, sysconfig
include = sysconfig.get_path("include", "posix_prefix")
sys.exit(not os.path.exists(os.path.join(include, "Python.h")))'
    if ! "$python" -c "$header"; then
        install_or_stop "Triton needs Python.h" "$(basename "$python")-dev"
    fi
}

# Whether $python already has a supported torch with CUDA, and its Triton.
has_torch() {
    "$python" - 2>/dev/null <<'PYTHON'
import sys
from importlib import metadata
from kernels import check_versions
check_versions(metadata.version("torch"), metadata.version("triton"))
import torch
sys.exit(not torch.cuda.is_available())
PYTHON
}

record_environment() {
    directory=.venv-record
    key="$(key pyproject.toml requirements*.txt kernels/__init__.py)"
    if finished "$directory" "$key"; then
        return
    fi
    rm -rf "$directory"
    if has_torch; then
        echo "Making $directory over the torch and Triton of $python"
        # Not --system-site-packages: from inside a venv that reaches its base.
        "$python" -m venv --without-pip "$directory"
        "$python" -c 'import sys
for path in sys.path:
    if path.endswith("-packages"):
        print(f"import site; site.addsitedir({path!r})")' \
            >"$("$directory/bin/python" -c \
                'import sysconfig; print(sysconfig.get_path("purelib"))')/outer.pth"
        if ! "$directory/bin/python" -m pip --version >/dev/null 2>&1; then
            need_venv
            "$directory/bin/python" -m ensurepip >/dev/null
        fi
    else
        need_venv
        echo "Making $directory from requirements-kernels.txt"
        "$python" -m venv "$directory"
        install "$directory" -r requirements-kernels.txt
    fi
    # What recording needs besides: only what is missing, and that pinned.
    set --
    for need in $("$python" -c 'import tomllib
with open("pyproject.toml", "rb") as file:
    print(*tomllib.load(file)["project"]["optional-dependencies"]["record"])'); do
        env -u PIP_FIND_LINKS PIP_CONFIG_FILE=/dev/null "$directory/bin/python" -m pip \
            install --quiet --dry-run --no-index "$need" >/dev/null 2>&1 ||
            set -- "$@" "$need"
    done
    if [ $# -gt 0 ]; then
        install "$directory" -c requirements.txt -c requirements-kernels.txt \
            -c requirements-test.txt "$@"
    fi
    "$directory/bin/python" -c \
        'import sys, torch; sys.exit(not torch.cuda.is_available())' || stop \
        "The torch in $directory sees no GPU, which an NVIDIA driver too old for it" \
        "explains: install one that fits the driver for $python and try again."
    echo "$key" >"$directory/complete"
}

site_environment() {
    environment .venv requirements.txt
}

test_environment() {
    environment .venv-test requirements.txt requirements-kernels.txt requirements-test.txt
}

case ${1:-} in
site)
    find_python
    site_environment
    ;;
test)
    find_python
    need_browser
    need_libatomic
    test_environment
    ;;
both)
    # apt serves one at a time: what it has to install comes first.
    find_python
    need_venv
    need_browser
    need_libatomic
    site_environment &
    test_environment
    wait $!
    ;;
record)
    find_python
    need_gpu
    need_compiler
    record_environment
    ;;
browser)
    need_browser
    command -v "$browser"
    ;;
*)
    stop "usage: sh .ci/setup.sh site | test | both | record | browser"
    ;;
esac
