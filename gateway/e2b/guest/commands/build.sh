#!/bin/sh
# Builds the helper for commands: `sh build.sh <output file>`, static and stripped, for machines of this host's architecture.
# With `sanitized` as second argument: with ASan and UBSan, for tests on the host. Warnings are errors. CC chooses the compiler.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
out=${1:?the output file}
warnings="-Wall -Wextra -Wconversion -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Werror"
form="-Os -static -ffunction-sections -fdata-sections -Wl,--gc-sections -s"
[ "${2:-}" != sanitized ] || form="-g -O1 -fno-omit-frame-pointer -fsanitize=address,undefined -fno-sanitize-recover=all"
mkdir -p "$(dirname "$out")"
# shellcheck disable=SC2086
${CC:-cc} -std=gnu11 -D_GNU_SOURCE $warnings $form -o "$out.new" "$here"/*.c -lm -lpthread
mv "$out.new" "$out"
