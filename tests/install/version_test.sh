#!/usr/bin/env bash
# The version is written down once, in the public header, and where a tool forces a copy on us the copy agrees.
# Usage: version_test.sh SOURCE-DIRECTORY VERSION-OF-THE-BUILD LIBRARY MGRUN
set -euo pipefail
source=$1
build=$2
library=$3
mgrun=$4
failed=0
expect() {
  if [[ $2 != "$3" ]]; then
    echo "version test: $1 is '$3', not '$2'" >&2
    failed=1
  fi
}

number() { sed -n "s/^#define MG_VERSION_$1 //p" "$source/include/multigrain/multigrain.h"; }
minor=$(number MAJOR).$(number MINOR)
header=$minor.$(number PATCH)
[[ $header =~ ^[0-9]+\.[0-9]+\.[0-9]+$ ]] || { echo "version test: multigrain.h has no version" >&2; exit 1; }

expect "the build's version" "$header" "$build"
# setuptools wants it as a constant.
expect "the version in study/pyproject.toml" "$header" "$(sed -n 's/^version = "\(.*\)"$/\1/p' "$source/study/pyproject.toml")"
expect "what mgrun --version prints" "mgrun (Multigrain) $header" "$("$mgrun" --version)"
expect "the library's SONAME" "libmultigrain.so.$minor" \
  "$(readelf -d "$library" | sed -n 's/.*(SONAME).*\[\(.*\)\]/\1/p')"
grep -qE "^## \[($header|Unreleased)\]" "$source/CHANGELOG.md" ||
  { echo "version test: CHANGELOG.md has no section for $header, and none for what is unreleased" >&2; failed=1; }
exit $failed
