#!/usr/bin/env bash
# The classic experiment with two tokens, A and B, line by line in redis-cli. Each line is shown with
# the answer that it has to get, and the first other answer ends it with exit code 1.
#
# The scripts are not copies: they are read out of include/leaselock/redis/script.hpp, so what is
# tried here is what the library sends.
#
#   examples/ab_experiment.sh             on a private server, which is stopped at the end
#   examples/ab_experiment.sh --port N    on the server at port N of this machine
#   REDIS_URL=redis://... examples/ab_experiment.sh
#
# REDIS_SERVER and REDIS_CLI name other binaries than redis-server and redis-cli from the PATH.
set -euo pipefail

fail() { # says why, and ends it
    echo "ab_experiment: $*" >&2
    exit 1
}
usage() { sed -n '2,/^set/s/^# \{0,1\}//p' "$0"; }
first_of() { # the first of these programs that is there
    local name
    for name; do command -v "$name" && return; done
    return 1
}

# --- which server ------------------------------------------------------------------------------

port=
while (($#)); do
    case $1 in
    --help) usage && exit ;;
    --port)
        [[ ${2:-} =~ ^[0-9]+$ ]] || { usage >&2 && exit 2; }
        port=$2 && shift 2
        ;;
    *) echo "ab_experiment: unknown option: $1" >&2 && usage >&2 && exit 2 ;;
    esac
done

cli=$(first_of ${REDIS_CLI:+"$REDIS_CLI"} redis-cli valkey-cli) ||
    fail "no redis-cli in the PATH (Debian: apt-get install redis-tools), and REDIS_CLI is not set"
where=()
if [[ -n $port ]]; then
    where=(-p "$port")
elif [[ -n ${REDIS_URL:-} ]]; then
    where=(-u "$REDIS_URL")
else
    server=$(first_of ${REDIS_SERVER:+"$REDIS_SERVER"} redis-server valkey-server) ||
        fail "no redis-server in the PATH, and REDIS_SERVER is not set"
    folder=$(mktemp -d)
    server_pid=
    trap '[[ -z $server_pid ]] || { kill "$server_pid" && wait "$server_pid"; } 2>/dev/null
          rm -rf "$folder"' EXIT
    trap 'exit 130' INT TERM HUP
    # A unix socket in a folder of our own: no port to collide with anybody's.
    "$server" --port 0 --unixsocket "$folder/redis.sock" --dir "$folder" --save '' \
        >"$folder/log" 2>&1 &
    server_pid=$!
    where=(-s "$folder/redis.sock")
    for ((tries = 0; tries < 400; ++tries)); do
        [[ $("$cli" "${where[@]}" PING 2>/dev/null) == PONG ]] && break
        kill -0 "$server_pid" 2>/dev/null || fail "$server ended: $(cat "$folder/log")"
        sleep 0.05
    done
fi
redis() { "$cli" "${where[@]}" --no-raw "$@"; }
[[ $(redis PING) == PONG ]] || fail "the server does not answer: $(redis PING 2>&1)"

# --- the scripts, as the library has them --------------------------------------------------------

header=$(dirname -- "${BASH_SOURCE[0]}")/../include/leaselock/redis/script.hpp
variant=1 # GETEX; 2 is that for servers before 6.2, which do not have it
[[ $(redis GETEX lock:none) == *"unknown command"* ]] && variant=2

# script NAME: the text of one script. script NAME sha1: the SHA-1 that the library calls it by.
# Each variant stands in braces of its own: string literals line by line, the last one the SHA-1.
script() {
    awk -v start="constexpr Script $1[{]" -v variant="$variant" -v want="${2:-text}" '
        $0 ~ start         { inside = 1 }
        inside && /^ *[{]/ { ++block }
        inside && block == variant && match($0, /".*"/) {
            text = text last
            last = substr($0, RSTART + 1, RLENGTH - 2)
            if ($0 ~ /[}],$/) exit
        }
        END {
            gsub(/\\n/, "\n", text)
            printf "%s", want == "sha1" ? last : text
        }' "$header"
}
delete=$(script compare_and_delete)
expire=$(script compare_and_expire)

# --- the experiment ----------------------------------------------------------------------------

key="lock:ab-$$"
lines=0

title() { printf '\n%s\n' "$*"; }

# line EXPECTED COMMAND...: sends the command, and compares the answer. EXPECTED may be a pattern.
line() {
    local expected=$1 answer shown
    shift
    answer=$(redis "$@" 2>&1) || true
    shown="$*"
    shown=${shown/"$delete"/\$compare_and_delete}
    shown=${shown/"$expire"/\$compare_and_expire}
    printf '  %-58s %-16s ' "$shown" "$answer"
    # shellcheck disable=SC2053
    if [[ $answer != $expected ]]; then
        echo "WRONG, expected: $expected"
        fail "stopped at the first answer that is not as expected"
    fi
    echo "expected: $expected"
    lines=$((lines + 1))
}

echo "The scripts, from include/leaselock/redis/script.hpp:"
printf '\n%s\n\n%s\n' "\$compare_and_delete:
$delete" "\$compare_and_expire:
$expire"

title "The server computes the SHA-1 by which the library calls them."
[[ $(redis SCRIPT LOAD "$delete") == "\"$(script compare_and_delete sha1)\"" ]] ||
    fail "compare_and_delete has another SHA-1 than the header says"
[[ $(redis SCRIPT LOAD "$expire") == "\"$(script compare_and_expire sha1)\"" ]] ||
    fail "compare_and_expire has another SHA-1 than the header says"
echo "  $(script compare_and_delete sha1) and $(script compare_and_expire sha1)"

title "A takes the lock. B does not get it."
line OK               SET "$key" token-A NX PX 10000
line "(nil)"          SET "$key" token-B NX PX 10000
line '"token-A"'      GET "$key"

title "B can neither release nor renew what is A's: 0, another's."
line "(integer) 0"    EVAL "$delete" 1 "$key" token-B
line "(integer) 0"    EVAL "$expire" 1 "$key" token-B 10000
line '"token-A"'      GET "$key"

title "A renews, and releases: 1. Once more: -1, nothing there."
line "(integer) 1"    EVAL "$expire" 1 "$key" token-A 20000
line "(integer) 1[5-9]???" PTTL "$key"
line "(integer) 1"    EVAL "$delete" 1 "$key" token-A
line "(integer) -1"   EVAL "$delete" 1 "$key" token-A

title "A takes it for 100 ms and stalls. The lock is free again, and a late renewal does not bring it back."
line OK               SET "$key" token-A NX PX 100
sleep 0.3
line "(integer) 0"    EXISTS "$key"
line "(integer) -1"   EVAL "$expire" 1 "$key" token-A 10000
line "(integer) 0"    EXISTS "$key"

title "The accident: B has the lock, A comes back with DEL. It deletes B's lock, and C gets in beside B."
line OK               SET "$key" token-B NX PX 10000
line "(integer) 1"    DEL "$key"
line OK               SET "$key" token-C NX PX 10000
line "(integer) 1"    EVAL "$delete" 1 "$key" token-C

title "The same with compare-and-delete: A hears 0, B's lock stands, C does not get in."
line OK               SET "$key" token-B NX PX 10000
line "(integer) 0"    EVAL "$delete" 1 "$key" token-A
line '"token-B"'      GET "$key"
line "(nil)"          SET "$key" token-C NX PX 10000
line "(integer) 1"    EVAL "$delete" 1 "$key" token-B

printf '\nAll %d answers were as expected.\n' "$lines"
