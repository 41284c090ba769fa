#!/usr/bin/env bash
# All checks that need a GPU, as one run: tests/gpu/check.sh
#
# Works without a network. What is missing is installed from wheels in .wheels/ if that folder
# exists, else from the package index; what cannot be had is reported by the tests that need it.
# Everything it prints also goes to $OUT (default: the current folder).
set -uo pipefail
export PYTHONUNBUFFERED=1
out=$(mkdir -p "${OUT:-.}" && cd "${OUT:-.}" && pwd) || exit 2
repo=$(cd "$(dirname "$0")/../.." && pwd) || exit 2
cd "$repo" || exit 2
python=${PYTHON:-python3}

have() { # have MODULE: can Python import it?
    "$python" -c "import $1" >/dev/null 2>&1
}

install() { # install MODULE REQUIREMENT: unless it is there; never fatal
    have "$1" && return
    local from=(--timeout 10 --retries 0)
    [ -d "$repo/.wheels" ] && from=(--no-index --find-links "$repo/.wheels")
    "$python" -m pip install --quiet --disable-pip-version-check "${from[@]}" "$2" ||
        echo "check.sh: could not install $2"
}

install_packages() { # install_packages CUDA_MAJOR
    install numpy numpy
    install gymnasium 'gymnasium>=1.2,<2'
    install pettingzoo 'pettingzoo>=1.25'
    install pytest 'pytest>=8'
    install rich rich
    install torch torch
    install cupy "cupy-cuda${1}x"
}

install_nvrtc() { # install_nvrtc CUDA_MAJOR: unless the system has one
    "$python" -c 'import gpu_zoo.nvrtc as n; n.library()' >/dev/null 2>&1 && return
    if [ "$1" = 12 ]; then
        install nvidia.cuda_nvrtc nvidia-cuda-nvrtc-cu12
    else
        install nvidia.cu13 nvidia-cuda-nvrtc
    fi
}

# Where gpu_zoo is not installed it is put together from links, since its kernels and wrappers lie
# at the top of the repository; Python looks first in the folder it is started from.
link_package() {
    have gpu_zoo.kernels && have gpu_zoo.wrappers && return
    local site
    site=$(mktemp -d) || exit 2
    mkdir "$site/gpu_zoo"
    ln -s "$repo"/gpu_zoo/* "$repo/kernels" "$repo/wrappers" "$repo/baselines" "$site/gpu_zoo/"
    cd "$site" || exit 2
}

cuda_major() { # what the driver takes: 13, or 12 if it is older
    local version
    version=$(nvidia-smi | sed -n 's/.*CUDA[A-Za-z ]*Version: *\([0-9]*\).*/\1/p' | head -n 1)
    if [ -n "$version" ] && [ "$version" -lt 13 ]; then echo 12; else echo 13; fi
}

main() {
    local status=0 tests="$repo/tests" cuda
    nvidia-smi || { echo "check.sh: no NVIDIA driver here" && return 2; }
    cuda=$(cuda_major)
    install_packages "$cuda"
    link_package
    install_nvrtc "$cuda"
    "$python" -c '
import sys
from gpu_zoo.backends import why_no_cuda
sys.exit(why_no_cuda() or 0)' || return 2
    # Other tests may need packages that this machine lacks.
    "$python" -m pytest -q -m gpu --collect-only "$tests" >/dev/null 2>&1 || tests="$tests/gpu"
    "$python" -m pytest -v -m gpu "$tests" --durations=10 --junitxml="$out/gpu.xml" || status=1
    "$python" "$repo/tests/gpu/bench.py" "$out" || status=1
    return "$status"
}

main 2>&1 | tee "$out/gpu.log"
