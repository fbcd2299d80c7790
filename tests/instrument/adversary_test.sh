#!/usr/bin/env bash
# Whole programs on two nodes, while a third one takes their lines away (adversary.c).
# Usage: adversary_test.sh BIN-DIRECTORY SEED SOURCE.c|SOURCE.cpp ARGUMENT...
set -euo pipefail
bin=$1 seed=$2 source=$3
shift 3
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { echo "adversary: $*" >&2; exit 1; }
wrapped=(main mg_alloc mg_free mg_spawn mg_spawn_all mg_join_all mg_barrier_create mg_processors mg_nodes)
"$bin/mgcc" -std=gnu11 -O2 -Wall -Wextra -Werror -c "$here/adversary.c" -o "$work/adversary.o"
"$bin/mgcc" -std=gnu11 -O2 -w "$source" "$work/adversary.o" "${wrapped[@]/#/-Wl,--wrap=}" -lm -o "$work/program"
for way in "--nodes 3 --protocol dszoom" "--nodes 3 --protocol shasta --model rc" "--nodes 3 --protocol shasta --model sc" \
           "--nodes 2 --procs-per-node 2 --protocol dszoom"; do
  # shellcheck disable=SC2086
  ADVERSARY_SEED=$seed timeout 300 "$bin/mgrun" $way "$work/program" "$@" > "$work/out" 2>&1 ||
    fail "$way, seed $seed: status $?: $(tail -n 5 "$work/out")"
  grep -q "adversary: has taken [1-9]" "$work/out" || fail "$way: no line was taken: $(tail -n 5 "$work/out")"
done
