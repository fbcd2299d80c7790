#!/bin/sh
# Prints the names of the functions that libraries export, as lines of C++ strings in the order of strcmp, for
# library_names.cpp.
# Usage: list_symbols.sh NM LIBRARY ... > FILE
set -e
nm=$1
shift
for library; do "$nm" -D --defined-only "$library"; done | sed -n 's/^[0-9a-f]* [TWi] \([^@]*\).*$/"\1",/p' | LC_ALL=C sort -u
