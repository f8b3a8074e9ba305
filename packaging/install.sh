#!/bin/sh
# Installs Plimsoll: fetches the archive for this system, checks its SHA-256, and puts the program into ~/.local/bin, with
# its other name, plimsoll-proxy.
#
#   PLIMSOLL_BASE_URL=https://… sh install.sh
#
# PLIMSOLL_BASE_URL  where the archives and SHA256SUMS are
# PLIMSOLL_PREFIX    where to install: PREFIX/bin/plimsoll. Unset: ~/.local
# PLIMSOLL_TARGET    the archive to take, such as x86_64-unknown-linux-musl. Unset: found out
#
# Needs curl or wget, tar, and sha256sum or shasum. Writes these two and nothing else; needs no root.
set -eu

# The release writes its own address here.
base="${PLIMSOLL_BASE_URL:-}"
prefix="${PLIMSOLL_PREFIX:-$HOME/.local}"

fail() {
  echo "install.sh: $*" >&2
  exit 1
}

fetch() { # FILE
  if command -v curl >/dev/null; then
    curl -fsSL --retry 2 -o "$place/$1" "$base/$1"
  else
    wget -q -O "$place/$1" "$base/$1"
  fi || fail "$base/$1 cannot be fetched"
}

sum() { # FILE
  if command -v sha256sum >/dev/null; then
    sha256sum "$1"
  else
    shasum -a 256 "$1"
  fi | cut -d ' ' -f 1
}

# The archives that may fit, the best first. The one for musl needs no library and runs on any Linux.
targets() {
  case "$(uname -m)" in
    x86_64 | amd64) machine=x86_64 ;;
    aarch64 | arm64) machine=aarch64 ;;
    *) fail "there is no archive for $(uname -m); build it with cargo install plimsoll-proxy" ;;
  esac
  case "$(uname -s)" in
    Linux) echo "$machine-unknown-linux-gnu $machine-unknown-linux-musl" ;;
    Darwin) echo "$machine-apple-darwin" ;;
    *) fail "there is no archive for $(uname -s); build it with cargo install plimsoll-proxy" ;;
  esac
}

# Fetches and unpacks an archive. Fails where its program does not run here.
unpack() { # TARGET
  archive="plimsoll-$1.tgz"
  wanted="$(sed -n "s/^\([0-9a-f]\{64\}\)  *\**$archive\$/\1/p" "$place/SHA256SUMS")"
  [ -n "$wanted" ] || return 1
  fetch "$archive"
  found="$(sum "$place/$archive")"
  [ "$found" = "$wanted" ] || fail "$archive has the SHA-256 $found and not $wanted: nothing is installed"
  tar -xzf "$place/$archive" -C "$place"
  program="$place/plimsoll-$1/plimsoll"
  version="$("$program" --version 2>/dev/null)"
}

main() {
  [ -n "$base" ] || fail "PLIMSOLL_BASE_URL is not set"
  place="$(mktemp -d)"
  trap 'rm -rf "$place"' EXIT
  fetch SHA256SUMS
  candidates="${PLIMSOLL_TARGET:-$(targets)}"
  for target in $candidates; do
    if unpack "$target"; then
      mkdir -p "$prefix/bin"
      # By a rename: a running program keeps its file.
      cp "$program" "$prefix/bin/.plimsoll.new"
      chmod 755 "$prefix/bin/.plimsoll.new"
      mv "$prefix/bin/.plimsoll.new" "$prefix/bin/plimsoll"
      ln -sf plimsoll "$prefix/bin/plimsoll-proxy"
      echo "$version is installed as $prefix/bin/plimsoll"
      case ":$PATH:" in
        *":$prefix/bin:"*) ;;
        *) echo "$prefix/bin is not in PATH: export PATH=\"$prefix/bin:\$PATH\"" ;;
      esac
      return
    fi
  done
  fail "no archive at $base runs here; looked for: $candidates"
}

# At the end, so that a script cut off in transfer does nothing.
main
