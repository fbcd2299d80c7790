#!/usr/bin/env bash
# A run of a program with LLVM's OpenMP leaves nothing of it in /dev/shm, on no node. usage: leaves_nothing.sh MGRUN PROGRAM
set -euo pipefail
mgrun=$1 program=$2
# The program has the process of the shell that names it.
pids=$("$mgrun" --nodes 3 --protocol hlrc sh -c "echo node \$\$; exec '$program' > /dev/null" | sed -n 's/^node //p')
[[ $(wc -w <<< "$pids") -eq 3 ]] || { echo "these should be three processes: $pids" >&2; exit 1; }
for pid in $pids; do
  left=$(compgen -G "/dev/shm/__KMP_REGISTERED_LIB_${pid}_*" || true)
  [[ -z $left ]] || { echo "left behind: $left" >&2; exit 1; }
done
