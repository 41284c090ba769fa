"""Install each combination of libraries in a fresh virtual environment, and run its tests there.

    python tests/compat/run.py                   # all combinations, short tests
    python tests/compat/run.py sb3 rllib --full  # these, and what is marked slow, too
    python tests/compat/run.py --bench           # speed as well, beside the library's usual way
    python tests/compat/run.py --keep FOLDER     # virtual environments stay there for the next time

Results go to docs/benchmarks as they come, and docs/_scripts/build_pages.py makes the table of
docs/compatibility.md of the newest of them. A combination whose tests are all skipped has failed.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import venv
from collections import Counter
from datetime import date
from pathlib import Path
from typing import Any

from combinations import COMBINATIONS, Combination

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
# What the tests themselves need. A run takes the torch that PIP_CONSTRAINT names, if it does.
TOOLS = ("pytest>=8", "hypothesis>=6", "scipy", "imageio[ffmpeg]")
Result = dict[str, Any]


def install(python: Path, combination: Combination) -> None:
    """Fill a virtual environment; gpu_zoo itself comes from a wheel, as users have it."""
    pip = [str(python), "-m", "pip", "install", "-q", "--disable-pip-version-check"]
    subprocess.run([*pip, f"{ROOT}[train]", *TOOLS, *combination.packages], check=True)


def versions(python: Path) -> dict[str, str]:
    """All that is installed, by name."""
    asked = [str(python), "-m", "pip", "list", "--format", "json", "--disable-pip-version-check"]
    listed = json.loads(subprocess.run(asked, check=True, capture_output=True, text=True).stdout)
    return {entry["name"].lower().replace("_", "-"): entry["version"] for entry in listed}


def test(python: Path, combination: Combination, full: bool) -> Result:
    """Run the tests, and the pages' scripts: how many passed, failed and were skipped, and the end
    of what they said.
    """
    marks = "slow or not slow" if full else "not slow"
    runs = [["-m", marks, *(f"tests/wrappers/test_{name}.py" for name in combination.tests)]]
    pages = [n for n in combination.tests if (ROOT / f"docs/integrations/{n}.md").exists()]
    runs += [["tests/docs/test_docs.py", "-k", f"integrations/{name}.md"] for name in pages]
    counts: Counter[str] = Counter()
    ok, said = True, ""
    for arguments in runs:
        # Not python -m pytest: that puts the sources before the package that was installed.
        command = [str(python.parent / "pytest"), "-q", "-p", "no:cacheprovider", *arguments]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env=_environment())
        found = re.findall(r"(\d+) (passed|failed|skipped|error)", done.stdout)
        counts.update({word: int(number) for number, word in found})
        if done.returncode or "passed" not in dict(map(reversed, found)):
            ok, said = False, said + (done.stdout + done.stderr)[-3000:]
    return {"ok": ok, **counts, **({} if ok else {"said": said})}


def bench(python: Path, name: str, arguments: str, rounds: int) -> Result:
    """Environment steps a second, in turns, each in a process of its own."""
    rates: dict[str, list[float]] = {"usual": [], "ours": []}
    for _ in range(rounds):
        for who, found in rates.items():
            code = f"from bench import {name}; print('rate', {name}.{who}({arguments}))"
            done = subprocess.run(
                [str(python), "-c", code], cwd=HERE, capture_output=True, text=True,
                env=_environment(),
            )  # fmt: skip
            if done.returncode:
                raise RuntimeError(f"{name}.{who}: {done.stderr[-2000:]}")
            found.append(float(re.findall(r"^rate (\S+)", done.stdout, re.MULTILINE)[-1]))
    return rates


def _environment() -> dict[str, str]:
    # One thread for torch everywhere: with its default, trainers of small networks get slower.
    return {**os.environ, "SDL_VIDEODRIVER": "dummy", "OMP_NUM_THREADS": "1"}


def run(name: str, folder: Path, *, full: bool, measure: bool, args: argparse.Namespace) -> Result:
    """One combination from an empty virtual environment to its results."""
    combination, home = COMBINATIONS[name], folder / name
    python = home / "bin" / "python"
    if not python.exists():
        venv.create(home, with_pip=True)
    install(python, combination)
    result: Result = {"date": date.today().isoformat(), "versions": versions(python)}
    result["tests"] = test(python, combination, full)
    if measure and combination.bench:
        result["rates"] = bench(python, combination.bench, f"{args.seconds}", args.rounds)
        if combination.collects:
            arguments = f"{args.seconds}, learn=False"
            result["collecting"] = bench(python, combination.bench, arguments, args.rounds)
        result["load"] = os.getloadavg()[0]
    return result


def main() -> int:
    """Run what was asked for; the exit status is the number of combinations that failed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="combination", help=", ".join(COMBINATIONS))
    parser.add_argument("--full", action="store_true", help="slow tests as well")
    parser.add_argument("--bench", action="store_true", help="measure speed as well")
    parser.add_argument("--seconds", type=float, default=10, help="of training a measurement")
    parser.add_argument("--rounds", type=int, default=3, help="measurements of each, in turns")
    parser.add_argument("--keep", type=Path, help="folder of virtual environments")
    parser.add_argument("--json", type=Path, help="results; what is in there stays")
    args = parser.parse_args()
    for name in args.names:
        if name not in COMBINATIONS:
            parser.error(f"combination {name!r}: expected one of {', '.join(COMBINATIONS)}")
    path = args.json or ROOT / "docs/benchmarks" / f"{date.today()}-compatibility-cpu.json"
    results = json.loads(path.read_text()) if path.exists() else {}
    failed = 0
    with tempfile.TemporaryDirectory() as empty:
        for name in args.names or COMBINATIONS:
            folder = args.keep or Path(empty)
            result = run(name, folder, full=args.full, measure=args.bench, args=args)
            kept = {
                k: v
                for k, v in results.get(name, {}).items()
                if k in ("rates", "collecting", "load")
            }
            results[name] = {**kept, **result}
            path.write_text(json.dumps(results, indent=1, sort_keys=True) + "\n")
            tests = {k: v for k, v in result["tests"].items() if k != "said"}
            print(name, tests, result.get("rates", ""), result["tests"].get("said", ""), flush=True)
            failed += not result["tests"]["ok"]
    return failed


if __name__ == "__main__":
    sys.exit(main())
