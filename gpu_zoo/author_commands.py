"""The subcommands for environments of one's own: ``gpu-zoo new`` and ``gpu-zoo check``."""

from __future__ import annotations

import sys

from gpu_zoo.arguments import (
    EnvId,
    Flag,
    Name,
    Names,
    Params,
    RulesClass,
    UserError,
    find_spec,
    parse_params,
    user_errors,
)


def new(name: Name, *, family: str = "mine") -> int:
    """Write a small environment of your own that works, to change from there.

    Its folder holds the spec, the kernel, the same rules in plain Python, a test and a page.

    Args:
        name: what it is called, such as my_env.
        family: first part of its id.
    """
    from gpu_zoo.scaffold import write_environment

    with user_errors():
        written = write_environment(name, family)
    for path in written:
        print(f"wrote {path}")
    print(f"next: gpu-zoo check {name}")
    return 0


def check(
    env_id: EnvId,
    *,
    rules: RulesClass = None,
    only: Names = [],  # noqa: B006
    params: Params = [],  # noqa: B006
    without_chance: Flag = False,
) -> int:
    """Check that an environment keeps every promise; exit code 1 if it does not.

    Args:
        env_id: environment, such as simple_spread_v3, or a file or folder of your own.
        rules: class with the same rules in plain Python, to compare the kernel with; else the class
            Rules of the file ..._rules.py beside a file of your own, if there is one.
        only: run this check alone, such as contract; all run else.
        params: environment parameter.
        without_chance: the rules draw no random numbers, so another seed gives the same game.
    """
    from gpu_zoo.authoring import rules_of
    from gpu_zoo.compile import CompileError
    from gpu_zoo.testing import CHECKS, CheckFailed, check_env

    entry = find_spec(env_id)
    values = parse_params(entry, params)
    for name in only:
        if name not in CHECKS:
            raise UserError(f"--only {name}: expected one of {', '.join(CHECKS)}")
    with user_errors():
        python_rules = rules_of(env_id, rules)
    try:
        check_env(
            entry,
            values,
            only or None,
            settings={"determinism": {"random_start": not without_chance}},
            rules=python_rules,
        )
    except CheckFailed:
        return 1  # the report is printed already
    except CompileError as error:
        print(error, file=sys.stderr)
        return 1
    return 0
