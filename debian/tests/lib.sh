# What the tests of the packages have in common. They use what is installed, and no file of the source tree but these.
set -euo pipefail
cd "$AUTOPKGTEST_TMP"
docs=/usr/share/doc/multigrain

fail() { echo "$(basename "$0"): $*" >&2; exit 1; }

# expect WHAT EXPECTED COMMAND...: the command prints what is expected, and succeeds.
expect() {
  local what=$1 expected=$2 actual
  shift 2
  actual=$("$@") || fail "$what ended with status $?"
  [[ $actual == "$expected" ]] || fail "$what printed '$actual', not '$expected'"
  echo "$what: as expected"
}

# block LANGUAGE FILE: the first piece of code in the language that a page of the documentation has.
block() { sed -n "/^\`\`\`$1\$/,/^\`\`\`\$/{/^\`\`\`/!p;/^\`\`\`\$/q}" "$docs/docs/user/$2"; }
