#!/bin/sh
# expect_status.sh STATUS COMMAND ARGUMENT...: succeeds if the command ends with that status (128 + n for signal n).
# The dumps of programs that are meant to die are of no interest.
ulimit -c 0
expected=$1
shift
"$@"
status=$?
if [ "$status" -ne "$expected" ]; then
  echo "expected status $expected, got $status" >&2
  exit 1
fi
