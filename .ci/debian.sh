# shellcheck shell=bash
# Roots of other Debians beside this one; .ci/debian13 and .ci/newer-servers source it. A root is made
# once by mmdebstrap, from the mirror that apt uses here, and is kept in
# ${XDG_CACHE_HOME:-~/.cache}/leaselock until the recipe that it was made by changes. Only the making
# needs a network.
#
#   LEASELOCK_DEBIAN_MIRROR=URL   another mirror
cache=${XDG_CACHE_HOME:-$HOME/.cache}/leaselock

# Mounts and processes of a command end with it.
apart() { unshare --mount --propagation private --pid --fork --kill-child --mount-proc "$@"; }

# Says why no root can be made and entered here; says nothing where it can.
obstacle() {
    if ((EUID != 0)); then
        echo "it makes and enters a root of its own, which takes root. Try: sudo $0"
    elif ! apart true 2>/dev/null; then
        echo "mount namespaces are not allowed here (a container without CAP_SYS_ADMIN?)."
    fi
}

# The archive that apt knows here, where this is a Debian. Other Debians are on the same mirror.
mirror() {
    local known
    # shellcheck disable=SC2016 # apt expands it
    known=$(apt-get indextargets --format '$(REPO_URI)' 'Origin: Debian' 'Label: Debian' |
        head -n 1) || true
    echo "${LEASELOCK_DEBIAN_MIRROR:-${known:-http://deb.debian.org/debian}}"
}

# bootstrap MMDEBSTRAP_ARGUMENT...
bootstrap() {
    have mmdebstrap || apt_install mmdebstrap
    [[ -e /usr/share/keyrings/debian-archive-keyring.gpg ]] || apt_install debian-archive-keyring
    # How apt fetches here (a proxy, a wrong clock) goes for what mmdebstrap fetches, too.
    local options
    options=$(apt-config dump | grep -E '^Acquire::(http|https|ftp|Check|Retries)[^ ]* "..*";$') || true
    apart mmdebstrap --mode=root --aptopt="$options" --aptopt='APT::Install-Recommends "false"' "$@"
}

# keep ROOT RECIPE COMMAND...: COMMAND makes the folder that is its last argument. Whoever goes on holds
# the root's lock with others, on descriptor 9; whoever makes it, alone.
keep() {
    local root=$1 recipe=$2
    mkdir -p "$cache"
    exec 9>"$root.lock"
    flock --shared 9
    if ! is_made "$root" "$recipe"; then
        flock 9
        is_made "$root" "$recipe" || make_and_put "$@" || return
        flock --shared 9
    fi
    echo "The root is there: $root"
}

is_made() { [[ -f $1/leaselock.recipe && $(<"$1/leaselock.recipe") == "$2" ]]; }

make_and_put() {
    local root=$1 recipe=$2 new old left
    shift 2
    say "Making the root $root"
    for left in "$root".{new,old}-*; do
        [[ ! -e $left ]] || remove "$left"
    done
    new=$(mktemp -d "$root.new-XXXXXX")
    chmod 755 "$new"
    "$@" "$new" || { remove "$new" && return 1; }
    printf '%s\n' "$recipe" >"$new/leaselock.recipe"
    if [[ -e $root ]]; then
        old=$(mktemp -d "$root.old-XXXXXX")
        mv -T -- "$root" "$old"
    fi
    mv -T -- "$new" "$root"
    [[ -z ${old:-} ]] || remove "$old"
}

# A folder that somebody has mounted something in is left: rm would empty what is mounted.
remove() {
    if grep -qF " $1/" /proc/self/mounts; then
        echo "Left, as something is mounted in it: $1"
    else
        rm -rf --one-file-system -- "$1"
    fi
}
