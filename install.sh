#!/usr/bin/env bash
# Makes .venv with everything the project needs, through the user's own pip configuration; `./install.sh clients`
# adds the other people's clients that the tests run, `./install.sh llamacpp` llama.cpp as the tests need it.
# Says what is missing in words: a Python that is too old, no venv module, no disk, no network.
# PYTHON=/path/to/python chooses the interpreter. Nothing outside .venv is touched.
set -euo pipefail
cd "$(dirname "$0")"

extras="dev${1:+,$1}"
what="into .venv"
needed_gb=4 # with a CPU build of PyTorch .venv takes 2 GB, and pip unpacks beside it
if [ -n "${1:-}" ] && [ -e .venv/installed ]; then
    what="the extra '$1' into .venv"
    needed_gb=1
fi
oldest="3.11"

stop() {
    printf '\nneuroscope: %s\n' "$1" >&2
    exit 1
}

new_enough() {
    command -v "$1" >/dev/null 2>&1 &&
        "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1
}

find_python() {
    local candidate
    if [ -n "${PYTHON:-}" ]; then
        new_enough "$PYTHON" || stop "PYTHON=$PYTHON is $("$PYTHON" --version 2>&1 || true); Python $oldest or newer is needed."
        printf '%s' "$PYTHON"
        return
    fi
    for candidate in python3 python3.13 python3.12 python3.11 python; do
        if new_enough "$candidate"; then
            printf '%s' "$candidate"
            return
        fi
    done
    stop "Python $oldest or newer is needed; found $(python3 --version 2>&1 || echo 'no python3').
Install one, then say where it is: make demo PYTHON=/path/to/python3.12"
}

check_disk() {
    local free_kb
    free_kb=$(df -Pk . | awk 'NR == 2 { print $4 }')
    [ "$free_kb" -ge $((needed_gb * 1024 * 1024)) ] ||
        stop "$((free_kb / 1024)) MB are free here and the installation needs $needed_gb GB (more with a CUDA build of PyTorch).
Free some space, or move the checkout to a larger disk."
}

explain_failure() {
    if grep -qiE 'no space left' "$1"; then
        stop "the disk filled up while pip was installing. Free some space and run the command again."
    elif grep -qiE 'name resolution|getaddrinfo|NewConnectionError|ConnectTimeout|Network is unreachable|No matching distribution|ProxyError|SSLError' "$1"; then
        stop "pip could not get the packages: no network, or no index that has them.
Neuroscope uses your own pip configuration (.venv/bin/python -m pip config list); mend it and run the command again."
    fi
    stop "pip could not install the packages; its own words stand above and in .venv/install.log."
}

# llama.cpp without its tools, and its many model files compiled by the dozen: half of the time. The programs and the
# library of pictures, which are left out, are nothing that this project calls.
llamacpp_arguments() {
    local read_first # a copy, since these arguments are split at spaces, which this path may have
    read_first=$(mktemp "${TMPDIR:-/tmp}/neuroscope-XXXXXX.cmake")
    cp tests/llamacpp.cmake "$read_first"
    printf -- '-D%s ' {LLAVA_BUILD,MTMD_BUILD,LLAMA_BUILD_TOOLS,LLAMA_BUILD_EXAMPLES,LLAMA_BUILD_TESTS,LLAMA_CURL}=OFF
    printf -- '-DCMAKE_PROJECT_llama_cpp_INCLUDE=%s' "$read_first"
}
if [ "${1:-}" = llamacpp ] && [ -z "${CMAKE_ARGS:-}" ]; then
    CMAKE_ARGS=$(llamacpp_arguments)
    export CMAKE_ARGS
fi

python=$(find_python)
check_disk
printf 'neuroscope: installing %s with %s (some minutes the first time)\n' "$what" "$("$python" --version 2>&1)" >&2

# An interrupted installation is continued; a .venv whose Python is gone is made anew.
.venv/bin/python -c '' 2>/dev/null || "$python" -m venv --clear .venv >&2 ||
    stop "Python's own venv module does not work here. On Debian and Ubuntu: apt install python3-venv"

.venv/bin/python -m pip install ${1:+--quiet} -c constraints.txt -e ".[$extras]" 2>&1 | tee .venv/install.log >&2 ||
    explain_failure .venv/install.log
touch .venv/installed ${1:+".venv/$1"}
