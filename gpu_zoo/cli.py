"""``gpu-zoo``: list, info, train, compare, play, render, bench, new, check, doctor and source.

A user's mistake (an unknown id, a bad parameter, a missing package) is one line on stderr and exit
code 2; a traceback always means a defect of ours.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Sequence


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code; ``argv`` defaults to the process's arguments."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    missing = [name for name in ("tyro", "rich") if importlib.util.find_spec(name) is None]
    if missing:
        return _complain(f"the command line needs {missing[0]}: pip install 'gpu-zoo[train]'")
    # Imported here: they are heavy, and they need what was just looked for.
    from gpu_zoo.arguments import UserError
    from gpu_zoo.commands import run
    from gpu_zoo.compile import CompileError
    from gpu_zoo.errors import MissingDependency
    from gpu_zoo.registry import UnknownEnvironment

    try:
        code = run(arguments or ["--help"])
        sys.stdout.flush()
    except (UserError, UnknownEnvironment, MissingDependency, CompileError) as error:
        return _complain(str(error))
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # Whoever read our output, such as `head`, has seen enough. Python flushes once more when it
        # exits, which must not fail again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:  # a file that cannot be read or written
        return _complain(str(error))
    return code


def _complain(message: str) -> int:
    print(f"gpu-zoo: {message}", file=sys.stderr)
    return 2


if __name__ == "__main__":  # for torchrun, which starts a module
    sys.exit(main())
