#!/bin/sh
# Builds the guest agent: `sh guest/build.sh <output directory>` makes <output directory>/agent, static and stripped.
# With `sanitized` as second argument: the agent and the codec's test program with ASan and UBSan, for tests on the host.
# With `fuzz`: the codec's fuzz target, which needs clang.
# Warnings are errors. CC chooses the compiler.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
out=${1:?the output directory}
mkdir -p "$out"
cc=${CC:-cc}
version=0.1.0
warnings="-Wall -Wextra -Wconversion -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Werror"
common="-std=gnu11 -D_GNU_SOURCE -DAGENT_VERSION=\"$version\" $warnings"
sources="main boot bulk cgroup channel clock connection drain exec file file-worker file-write frame freeze generation grow host identity input kept killed log machine memory mount net output peer resend shutdown sockets spawn timer user warm watch workload"
files=
for source in $sources; do files="$files $here/$source.c"; done

case ${2:-agent} in
agent)
  # For size the compiler would copy byte by byte in place (`rep movsb`), of which an emulator makes one step per byte. The library
  # copies 32 bytes at a time.
  # shellcheck disable=SC2086
  $cc $common -Os -fno-builtin-memcpy -static -ffunction-sections -fdata-sections -Wl,--gc-sections -s -o "$out/agent.new" $files
  mv "$out/agent.new" "$out/agent"
  ;;
sanitized)
  sanitizers="-g -O1 -fno-omit-frame-pointer -fsanitize=address,undefined -fno-sanitize-recover=all"
  # shellcheck disable=SC2086
  $cc $common $sanitizers -o "$out/agent-sanitized" $files
  # shellcheck disable=SC2086
  $cc $common $sanitizers -I"$here" -o "$out/vectors" "$here/test/vectors.c" "$here/frame.c"
  ;;
fuzz)
  # shellcheck disable=SC2086
  clang $common -g -O1 -fsanitize=fuzzer,address,undefined -I"$here" -o "$out/fuzz" "$here/test/fuzz.c" "$here/frame.c"
  ;;
*)
  echo "build.sh: unknown kind '$2': agent, sanitized or fuzz" >&2
  exit 1
  ;;
esac
