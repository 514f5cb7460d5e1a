# What `outboard run --server ssh://...` has a POSIX shell do on the server's machine. In front of it
# stand the variables machine, release, sums, parts, driver and listen. Standard input goes on with
# the files that are asked for; its end is the server's.

say() { printf 'outboard-ssh: %s\n' "$*"; }

# Whether the release in a folder is, byte by byte, the one that is wanted. Files that have not changed
# since they were looked at need not be read again.
is_whole() {
    now=$(cd "$1" 2>/dev/null && stat -c '%n %i %s %y %z' $paths 2>/dev/null) || return 1
    [ "$now" = "$(cat "$1/$checked" 2>/dev/null)" ] && return
    (cd "$1" && printf '%s\n' "$sums" | sha256sum -c - >/dev/null 2>&1) || return 1
    case $1 in "$cache"/*) printf '%s\n' "$now" >"$1/$checked" ;; esac
}

# Whether anything here speaks of an NVIDIA GPU: its driver's files, those of the subsystem for Linux
# and of Tegra, or the driver library.
may_have_gpu() {
    for sign in /dev/nvidiactl /dev/nvidia[0-9]* /dev/dxg /dev/nvmap /proc/driver/nvidia; do
        if [ -e "$sign" ]; then return; fi
    done
    PATH=$PATH:/sbin:/usr/sbin ldconfig -p 2>/dev/null | grep -q 'libcuda\.so\.1 '
}

# Files are complete and right when they get their names, one by one: runs that do this at once put
# the same files there, and servers that run keep theirs.
take() {
    mkdir -p "$cache" && new=$(mktemp -d "$cache/new.XXXXXX") || return 1
    say want
    fill
    filled=$?
    rm -rf "$new"
    return $filled
}

# So many bytes of standard input, and none of those behind them: busybox's `head` reads more than it
# prints.
exactly() {
    block=65536
    blocks=$(($1 / block)) rest=$(($1 % block))
    if [ $blocks -gt 0 ]; then
        dd bs=$block count=$blocks iflag=fullblock status=none || return 1
    fi
    if [ $rest -gt 0 ]; then dd bs=$rest count=1 iflag=fullblock status=none; fi
}

fill() {
    for part in $parts; do
        size=${part%%:*} path=${part#*:}
        mkdir -p "$new/${path%/*}" "$home/${path%/*}" && exactly "$size" >"$new/$path" || return 1
        chmod 755 "$new/$path" || return 1
    done
    (cd "$new" && sync $paths)
    is_whole "$new" || {
        echo 'what has arrived is not what was sent' >&2
        return 1
    }
    for path in $paths; do mv -f "$new/$path" "$home/$path" || return 1; done
    is_whole "$home"
}

# Keeps the releases that were used last, and those of the last day.
sweep() {
    ls -1td "$cache"/*/ 2>/dev/null | tail -n +5 | while IFS= read -r old; do
        find "${old%/}" -prune -mtime +0 -exec rm -rf {} + 2>/dev/null
    done
}

serve() {
    umask 077
    found=$(uname -sm)
    if [ "$found" != "Linux $machine" ]; then
        say machine "$found"
        return
    fi
    for tool in sha256sum stat dd tail mktemp find env sed; do
        if ! command -v "$tool" >/dev/null; then
            say missing "$tool"
            return
        fi
    done
    # Settings of another server on this machine are not meant for this one.
    for name in $(env | sed -n 's/^\(OUTBOARD_[A-Z0-9_]*\)=.*/\1/p'); do
        case $name in OUTBOARD_CPU_*) ;; *) unset "$name" ;; esac
    done
    if [ "$listen" = auto ]; then
        # The address at which ssh has reached this machine.
        set -- ${SSH_CONNECTION-}
        case ${3-} in
            # None that others could use: it was a pipe, or the address counts on one link only.
            '' | *[!0-9A-Fa-f.:]*) listen=127.0.0.1 ;;
            *:*) listen="[$3]" ;;
            *) listen=$3 ;;
        esac
    fi
    run=$(mktemp -d "${XDG_RUNTIME_DIR:-/tmp}/outboard-ssh-XXXXXX" 2>/dev/null ||
        mktemp -d /tmp/outboard-ssh-XXXXXX) || {
        say failed 'no folder for temporary files can be made in /tmp'
        return
    }
    trap 'rm -rf "$run"' EXIT
    trap 'exit 1' HUP INT TERM
    cache=${XDG_CACHE_HOME:-$HOME/.cache}/outboard/releases
    home=$cache/$release
    checked=checked
    paths=
    for part in $parts; do paths="$paths ${part#*:}"; done
    if is_whole "$home"; then
        touch "$home"
    else
        installed=$(readlink -f "$(command -v outboard 2>/dev/null)" 2>/dev/null)
        installed=${installed%/bin/outboard}
        if [ -n "$installed" ] && is_whole "$installed"; then
            home=$installed
        elif [ "$driver" = nvidia ] && ! may_have_gpu; then
            say no_gpu
            return
        elif ! take 2>"$run/log"; then
            say failed "the release cannot be kept in $cache: $(tail -n 1 "$run/log")"
            return
        fi
        sweep
    fi
    XDG_RUNTIME_DIR=$run "$home/bin/outboard" --config none serve --over-ssh --driver "$driver" \
        --listen "$listen:0" --socket none --admin none --records none --drain 1 \
        --warm 1 --warm-devices none 2>"$run/log"
    status=$?
    said=$(tail -c 4000 "$run/log")
    rm -rf "$run"
    say ended "$status"
    printf '%s\n' "$said"
}

serve; exit
