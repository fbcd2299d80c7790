#!/usr/bin/env bash
# Installs what is missing to build and test Multigrain on Debian 12, and nothing that is there already.
# Usage: cmake/setup.sh build|test     (test: also Clang 19, for the sanitizers)
set -euo pipefail

packages=(g++ cmake ninja-build pkg-config m4 libfmt-dev libcli11-dev nlohmann-json3-dev libhwloc-dev libexpected-dev
          libboost-dev libsodium-dev libucx-dev libpmix-dev libpmi2-0-dev libgtest-dev libgmock-dev
          clang-19 llvm-19-dev libzydis-dev)
case "${1-}" in
  build) ;;
  test) packages+=(clang-19 libclang-rt-19-dev llvm-19 openmpi-bin mpich slurm-client slurmctld slurmd slurm-wlm-basic-plugins munge
                   openssh-server openssh-client iproute2) ;;
  *) echo "usage: $0 build|test" >&2; exit 2 ;;
esac

if ! command -v dpkg-query > /dev/null || ! command -v apt-get > /dev/null; then
  echo "setup: this is not a Debian system; if the build fails, install the equivalents of: ${packages[*]}" >&2
  exit 0
fi

missing=()
for package in "${packages[@]}"; do
  state=$(dpkg-query -W -f '${db:Status-Status}' "$package" 2> /dev/null || true)
  [[ $state == installed ]] || missing+=("$package")
done
if [[ ${#missing[@]} -eq 0 ]]; then
  echo "setup: everything needed is installed"
  exit 0
fi

as_root=()
if [[ $(id -u) -ne 0 ]]; then
  if ! command -v sudo > /dev/null; then
    echo "setup: these packages are missing, and only root can install them: ${missing[*]}" >&2
    exit 1
  fi
  as_root=(sudo)
fi
echo "setup: installing ${missing[*]}"
if ! "${as_root[@]}" apt-get update -q || ! "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
    apt-get install -q -y --no-install-recommends "${missing[@]}"; then
  echo "setup: apt-get could not install ${missing[*]}; see its messages above" >&2
  exit 1
fi
