# Shared by the scripts beside it, which source it after `set -eu` and from the root of the tree: what to install, and
# how a build directory is made.

say()
{
    printf '\n== %s\n' "$*"
}

# Installs those of the named Debian packages that are missing, as root or through sudo.
need()
{
    if ! command -v apt-get >/dev/null; then
        echo "This system has no apt-get; going on with what is installed (wanted: $*)." >&2
        return 0
    fi
    missing=
    for package in "$@"; do
        state=$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null) || state=
        [ "$state" = installed ] || missing="$missing $package"
    done
    [ -n "$missing" ] || return 0

    as_root=
    if [ "$(id -u)" -ne 0 ]; then
        if ! command -v sudo >/dev/null; then
            echo "Missing packages, and neither root nor sudo to install them:$missing" >&2
            return 1
        fi
        as_root=sudo
    fi
    say "Installing$missing"
    $as_root apt-get -qq update
    $as_root env DEBIAN_FRONTEND=noninteractive \
        apt-get -qq -y --no-install-recommends -o Dpkg::Use-Pty=0 install $missing >/dev/null
}

# Where several OpenBLAS builds are installed, Debian's alternatives prefer the pthread one: name the OpenMP build's
# own pkg-config folder first.
prefer_openmp_blas()
{
    command -v dpkg >/dev/null || return 0
    folder=$(dpkg -L libopenblas-openmp-dev 2>/dev/null | sed -n 's,/openblas\.pc$,,p')
    [ -n "$folder" ] || return 0
    PKG_CONFIG_PATH=$folder${PKG_CONFIG_PATH:+:$PKG_CONFIG_PATH}
    export PKG_CONFIG_PATH
}

# configure DIRECTORY OPTION...: makes the build directory, or makes it anew when the options or the nvcc on PATH are
# no longer those it was made with (Meson keeps what it once found).
configure()
{
    directory=$1
    shift
    wanted="nvcc=$(command -v nvcc || echo none) $*"
    if [ -f "$directory/build.ninja" ] && [ "$(cat "$directory/made-with" 2>/dev/null)" = "$wanted" ]; then
        return 0
    fi
    rm -rf "$directory"
    if ! meson setup "$directory" "$@" >"$directory.log" 2>&1; then
        cat "$directory.log" >&2
        rm -f "$directory.log"
        return 1
    fi
    sed -n '/^rill /,/bench /p' "$directory.log"
    mv "$directory.log" "$directory/setup.log"
    printf '%s\n' "$wanted" >"$directory/made-with"
}
