#!/usr/bin/env bash
# Installs what is missing to build and test Multigrain on Debian 12, and nothing that is there already. Python packages go
# into build/python, an environment of their own.
# Usage: cmake/setup.sh build|test     (test: also Clang 19, for the sanitizers)
set -euo pipefail

packages=(g++ cmake ninja-build pkg-config m4 libfmt-dev libcli11-dev nlohmann-json3-dev libhwloc-dev libexpected-dev
          libboost-dev libsodium-dev libucx-dev libpmix-dev libpmi2-0-dev libgtest-dev libgmock-dev
          clang-19 libomp-19-dev llvm-19-dev libzydis-dev libdw-dev
          libzstd-dev libxxhash-dev python3-dev python3-venv)
case "${1-}" in
  build) ;;
  test) packages+=(libclang-rt-19-dev llvm-19 llvm-19-linker-tools lld-19 openmpi-bin mpich slurm-client slurmctld slurmd slurm-wlm-basic-plugins munge
                   openssh-server openssh-client iproute2 gdb valgrind postgresql-15
                   chromium chromium-driver fonts-dejavu-core
                   clang-format-19 clang-tidy-19 doxygen) ;;
  *) echo "usage: $0 build|test" >&2; exit 2 ;;
esac

# build/python has what study/requirements.txt lists, for reports and the Python bindings; for the tests a little more.
# Where it cannot be made, the rest builds all the same, and only `test` fails.
python_packages() {
  cd "$(dirname "$0")/.."
  local environment=build/python requirements=study/requirements.txt python=/usr/bin/python3
  if [[ $1 == test ]]; then requirements=study/requirements-test.txt; fi
  local stamp=$environment/installed wanted
  wanted=$(cat study/requirements.txt "$requirements")
  # The environment for tests is good for builds, too.
  if [[ -f $stamp && ( $(< "$stamp") == "$wanted" ||
        ( $1 == build && $(< "$stamp") == "$(cat study/requirements.txt study/requirements-test.txt)" ) ) ]]; then
    return 0
  fi
  [[ -x $python ]] || python=python3
  echo "setup: installing the Python packages of $requirements into $environment"
  if { "$python" -m venv "$environment" &&
       "$environment/bin/python" -m pip install -q --disable-pip-version-check -r "$requirements"; }; then
    printf '%s\n' "$wanted" > "$stamp"
  elif [[ $1 == test ]]; then
    echo "setup: pip could not install them; see its messages above" >&2
    exit 1
  else
    echo "setup: pip could not install them: mgstudy, mgtrace report and the Python bindings will not be there" >&2
  fi
}

if ! command -v dpkg-query > /dev/null || ! command -v apt-get > /dev/null; then
  echo "setup: this is not a Debian system; if the build fails, install the equivalents of: ${packages[*]}" >&2
  python_packages "$1"
  exit 0
fi

missing=()
for package in "${packages[@]}"; do
  state=$(dpkg-query -W -f '${db:Status-Status}' "$package" 2> /dev/null || true)
  [[ $state == installed ]] || missing+=("$package")
done
if [[ ${#missing[@]} -eq 0 ]]; then
  python_packages "$1"
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
python_packages "$1"
