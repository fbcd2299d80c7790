#!/usr/bin/env bash
# Which pages move to lines if Multigrain chooses the protocol, what keeps all of them from it, and that the statistics say so.
# Usage: chosen_lines_test.sh BIN-DIRECTORY CHOSEN_LINES.C
set -euo pipefail
bin=$1 source=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
fail() { echo "chosen lines: $*" >&2; exit 1; }
# runs STATUS OPTIONS-OF-MGRUN PROGRAM ARGUMENTS...: output and statistics go to files.
runs() {
  local status=$1 options=$2 actual=0
  shift 2
  # shellcheck disable=SC2086
  "$bin/mgrun" --stats text:stats $options -- "$@" > out 2>&1 || actual=$?
  [[ $actual == "$status" ]] || fail "mgrun $options $*: status $actual: $(cat out)"
  [[ $status != 0 ]] || grep -q right out || fail "mgrun $options $*: $(cat out)"
}
moved() { grep "pages moved to lines" stats > /dev/null; }
says() { grep -F "$1" stats > /dev/null || fail "the statistics do not say '$1' but: $(head -n 4 stats)"; }
no_page() {
  ! moved || fail "pages have moved, where $1"
}

cat > other.c << 'TEXT'
int other(int x) { return x + 1; }
TEXT
cat > gap.c << 'TEXT'
void gap(long *at) { __asm__ volatile("incq %0" : "+m"(*at)); }
TEXT
"$bin/mgcc" -O2 -g "$source" -o whole
"$bin/mgcc" -O2 -c "$source" -o main.o
"$bin/mgcc" -O2 -c other.c -o other.o && cc -O2 -c other.c -o unchecked.o
"$bin/mgcc" -O2 -w -c gap.c -o gap.o
ar rcs libother.a other.o && ar rcs libunchecked.a other.o unchecked.o
"$bin/mgcc" -O2 -flto -fno-multigrain-checks -c other.c -o bitcode.o && ar rcs libbitcode.a other.o bitcode.o
"$bin/mgcc" -O2 -fPIC -shared other.c -o libshared.so

for shape in "2 1" "2 2" "4 1" "3 2"; do
  read -r nodes processors <<< "$shape"
  for _ in 1 2 3; do
    runs 0 "--nodes $nodes --procs-per-node $processors" ./whole
    moved || fail "no page has moved on $nodes nodes of $processors"
  done
done
says "Chosen: protocol hlrc, because the nodes share the memory of one machine."
says "moved to lines: that is faster for pages whose diffs change few"

for linked in "main.o other.o" "main.o libother.a" "$source other.o -lm -Wl,-O1"; do
  # shellcheck disable=SC2086
  "$bin/mgcc" $linked -o linked
  runs 0 "--nodes 2" ./linked
  moved || fail "no page has moved with $linked"
done
for linked in "main.o unchecked.o" "main.o libunchecked.a" "main.o -L. -lother" "main.o gap.o" "main.o libbitcode.a" "main.o ./libshared.so" "-flto $source -w"; do
  # shellcheck disable=SC2086
  "$bin/mgcc" -O2 $linked -o linked
  runs 0 "--nodes 2" ./linked
  no_page "$linked is linked"
  says "some code of the program may reach shared memory without checks"
done
"$bin/mgcc" -O2 -fno-multigrain-checks "$source" -o plain
runs 0 "--nodes 2" ./plain
no_page "there are no checks"
says "the program has no compiled checks"

runs 0 "--nodes 2 --protocol hlrc" ./whole
no_page "the protocol is named"
! grep -q "Chosen" stats || fail "the statistics tell of a choice where there was none"
runs 0 "--nodes 2 --hlrc homes=stay" ./whole
no_page "homes stay"
says "homes stay where they are"
runs 0 "--nodes 2" ./whole named
no_page "the allocation names its protocol"
runs 0 "--nodes 2 --net latency=1us" ./whole
no_page "there is a network"
says "Chosen: protocol mgs"
runs 0 "--nodes 2" ./whole handed-before
no_page "a function without checks knows an address"
says "was handed memory that might have"
runs 0 "--nodes 2" ./whole threads
no_page "the program has threads of its own"
says "because the program has started threads of its own"
runs 0 "--nodes 2" ./whole threads-elsewhere
no_page "a processor of node 1 has started a thread"
# Processors that come by at locks may miss each other, so not each run has a rendezvous.
for shape in "2 1" "2 2"; do
  read -r nodes processors <<< "$shape"
  met=
  for _ in $(seq 100); do
    runs 0 "--nodes $nodes --procs-per-node $processors" ./whole locks
    if moved && grep -q "arrivals at rendezvous" stats; then met=1; break; fi
  done
  [[ $met ]] || fail "in 100 runs no page has moved at a rendezvous of $nodes nodes of $processors"
done
runs 1 "--nodes 2" ./whole handed-after
grep -q "handed to pthread_mutex_init, which has no access checks.*--protocol hlrc" out || fail "no sentence at handed-after: $(cat out)"
runs 0 "--nodes 2 --protocol hlrc" ./whole handed-after
