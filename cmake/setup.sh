# shellcheck shell=bash
# What ./examples/run, ./tests/run and .ci/run share; they source it. It finds what is missing on
# this machine and asks apt for exactly that, then configures, builds and tests by preset.
#
#   REDIS_SERVER=/path   the server binary to use instead of the redis-server in the PATH
#   CXX                  the compiler, as CMake knows it

say() { printf '\n==> %s\n' "$*"; }
fail() {
    printf '\nerror: %s\n' "$*" >&2
    exit 1
}
have() { command -v "$1" >/dev/null 2>&1; }

# Where the caller stands, a relative REDIS_SERVER still means what it says.
if [[ -n ${REDIS_SERVER:-} ]]; then
    [[ $REDIS_SERVER == /* ]] || REDIS_SERVER=$PWD/$REDIS_SERVER
    [[ -f $REDIS_SERVER && -x $REDIS_SERVER ]] ||
        fail "REDIS_SERVER=$REDIS_SERVER is no program that can be run."
    export REDIS_SERVER
fi
cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." || exit 1

jobs=$(nproc 2>/dev/null || echo 2)

# --- what is missing ---------------------------------------------------------------------------

missing=() # Debian package names, valid in Debian 12, 13 and Ubuntu 24.04

# need PACKAGE TEST...: the package is missing unless the test succeeds.
need() {
    local package=$1
    shift
    "$@" || missing+=("$package")
}
have_header() {
    [[ -e /usr/include/$1 ]] && return
    local flags=() prefix
    for prefix in $(tr : " " <<<"${CMAKE_PREFIX_PATH:-}"); do flags+=("-I$prefix/include"); done
    printf '#include <%s>\n' "$1" | "${CXX:-c++}" "${flags[@]}" -x c++ -E - >/dev/null 2>&1
}
have_build_tool() { have ninja || have make; }
have_catch2() { have_header catch2/catch_all.hpp || have_header catch2/catch.hpp; }
have_server() {
    [[ -n ${REDIS_SERVER:-} ]] && return
    REDIS_SERVER=$(command -v redis-server || command -v valkey-server) && export REDIS_SERVER
}

# server_version COMMAND...: "Redis 7.0.15", "Valkey 8.1.1"
server_version() { "$@" --version | sed -nE 's/^([A-Za-z]+) .*v=([0-9.]+).*/\1 \2/p'; }

need_for_examples() {
    need g++ have "${CXX:-c++}"
    need cmake have cmake
    need ninja-build have_build_tool
    need libhiredis-dev have_header hiredis/hiredis.h
    need redis-server have_server
}
need_for_tests() {
    need_for_examples
    need libgtest-dev have_header gtest/gtest.h
    need libgmock-dev have_header gmock/gmock.h
    need catch2 have_catch2
    need libssl-dev have_header openssl/ssl.h
    need redis-tools have redis-cli # the A/B experiment speaks through redis-cli
    need spin have spin             # tests/model
}

# --- apt ---------------------------------------------------------------------------------------

install_missing() {
    if ((${#missing[@]} == 0)); then
        echo "Everything needed is here."
    else
        echo "Missing: ${missing[*]}"
        apt_install "${missing[@]}"
    fi
    have_server || fail "Neither redis-server nor valkey-server is in the PATH. Set REDIS_SERVER."
    echo "Server: $REDIS_SERVER, $(server_version "$REDIS_SERVER")"

    local version
    version=$(cmake --version | sed -n '1s/[^0-9]*//p')
    [[ $(printf '3.25\n%s\n' "$version" | sort -V | head -n 1) == 3.25 ]] ||
        fail "CMake 3.25 or newer is needed, this is $version."
}

apt_install() {
    local by_hand="apt-get update && apt-get install -y --no-install-recommends $*"
    have apt-get || fail "There is no apt-get here. Install what Debian calls: $*"

    local root=()
    if ((EUID != 0)); then
        # Without a terminal sudo must not ask for a password.
        if have sudo && { [[ -t 0 ]] || sudo -n true 2>/dev/null; }; then
            root=(sudo)
        else
            fail "These packages are missing, and only root may install them: $*
Run as root:  $by_hand"
        fi
    fi
    echo "Asking apt${root[0]:+, through sudo,} for: $*"

    (
        # redis-server comes with a service. Nobody asked for a running one: while apt works, the
        # policy that Debian's own tools ask says no, unless the machine has a policy already.
        policy=/usr/sbin/policy-rc.d
        if [[ " $* " == *" redis-server "* && ! -e $policy ]]; then
            trap '"${root[@]}" rm -f "$policy"' EXIT
            printf '#!/bin/sh\nexit 101\n' | "${root[@]}" tee "$policy" >/dev/null
            "${root[@]}" chmod +x "$policy"
            echo "The service that comes with redis-server will be neither started nor enabled."
            disable_service=1
        fi
        "${root[@]}" apt-get update &&
            "${root[@]}" env DEBIAN_FRONTEND=noninteractive \
                apt-get install -y --no-install-recommends "$@" ||
            exit 1
        if [[ -n ${disable_service:-} ]]; then
            "${root[@]}" update-rc.d redis-server disable # systemd's unit, too
        fi
    ) </dev/null || fail "apt failed. By hand, as root:  $by_hand"
}

# --- configure, build, test by preset ----------------------------------------------------------

# configure PRESET [CMAKE ARGUMENT]...
configure() {
    have ninja && export CMAKE_GENERATOR="${CMAKE_GENERATOR:-Ninja}"
    have ccache && export CMAKE_CXX_COMPILER_LAUNCHER="${CMAKE_CXX_COMPILER_LAUNCHER:-ccache}"
    cmake --preset "$@"
}
# build PRESET [CMAKE --BUILD ARGUMENT]...
build() { cmake --build --preset "$1" --parallel "$jobs" "${@:2}"; }
# run_tests PRESET [CTEST ARGUMENT]...
# Most of them wait most of their time.
run_tests() { ctest --preset "$1" --parallel "$((2 * jobs))" "${@:2}"; }
