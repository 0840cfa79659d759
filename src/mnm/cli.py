"""The command line. Heavy imports wait until a command needs them, so that --help is quick."""

from __future__ import annotations

import contextlib
import errno
import io
import os
import sys
from dataclasses import dataclass
from typing import Any

import tyro

import mnm
from mnm.commands.cache import FLAG, use_compilation_cache
from mnm.commands.certify import Certify, certify
from mnm.commands.collect import Collect, collect
from mnm.commands.compare import Compare, compare
from mnm.commands.envs import Envs, envs
from mnm.commands.evaluate import Evaluate, evaluate
from mnm.commands.export import Export, export
from mnm.commands.render import Render, render
from mnm.commands.report import Report, report
from mnm.commands.reproduce import Reproduce, reproduce
from mnm.commands.resume import Resume, resume
from mnm.commands.solve import Solve, solve
from mnm.commands.sweep import shield_overrides, sweep
from mnm.messages import FAILED, UserError, fail, missing_extra, nearest, short, show_tracebacks, with_new_flags
from mnm.sweeps.request import Sweep

TRACEBACK = "--traceback"


@dataclass(frozen=True)
class Train:
    """Train an agent on a Gymnasium task: mnm train AGENT --env ID. See mnm train --help, mnm train AGENT --help.

    From data alone: mnm train AGENT --dataset D --updates N
    Example: mnm train mnm_approx --env Pendulum-v1 --steps 4000
    """


COMMANDS: dict[str, Any] = {
    "train": Train,
    "resume": Resume,
    "evaluate": Evaluate,
    "certify": Certify,
    "render": Render,
    "export": Export,
    "collect": Collect,
    "sweep": Sweep,
    "compare": Compare,
    "report": Report,
    "envs": Envs,
    "reproduce": Reproduce,
    "solve": Solve,
}
"""In the order in which one needs them."""
RENAMED = {name: {"--png": "--picture"} for name in ("compare", "envs", "solve")}
"""Old flags of a command, which go with version 0.3."""


def main() -> None:
    """The `mnm` command."""
    for stream in (sys.stdout, sys.stderr):  # a terminal without arrows shows question marks
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    try:
        code = run(use_compilation_cache(without_traceback_flag(sys.argv[1:]), os.environ))
        sys.stdout.flush()
        sys.exit(code)
    except ImportError as error:
        missing = missing_extra(error)
        if missing is None:
            raise
        sys.exit(fail(f"this {missing}"))
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:  # the reader of our output, head say, has gone
        sys.stderr.close()
        sys.exit(1)
    except OSError as error:  # standard output cannot be written
        with contextlib.suppress(OSError):
            sys.stdout.close()  # else Python tries again at its end
        sys.exit(told(error))


def without_traceback_flag(arguments: list[str]) -> list[str]:
    """The other arguments; with the flag, errors are shown in full."""
    if TRACEBACK in arguments:
        show_tracebacks()
    return [argument for argument in arguments if argument != TRACEBACK]


def run(arguments: list[str]) -> int:
    """Parse the arguments and do what they say; the exit code: 0, 1 failed, 2 bad input, 3 not certified."""
    try:
        return dispatch(arguments)
    except UserError as error:
        return fail(str(error))
    except BrokenPipeError:
        raise
    except OSError as error:  # a name too long for the file system, a folder that must not be read, a full disk
        return told(error)


def told(error: OSError) -> int:
    """The exit code, after a line that says what the system refused."""
    place = f"{short(error.filename)}: " if error.filename is not None else ""
    code = fail(f"{place}{error.strerror or error}")
    return FAILED if error.errno in (errno.ENOSPC, errno.EDQUOT) else code


def dispatch(arguments: list[str]) -> int:
    """Find the command and run it."""
    if arguments == ["--version"]:
        print(f"mnm {mnm.__version__}")
        return 0
    if arguments[:1] == ["train"]:  # its flags are the agents' settings: only now are the agents imported
        from mnm.commands.train import train

        return train(arguments[1:])
    if arguments and not arguments[0].startswith("-") and arguments[0] not in COMMANDS:
        hint = nearest(arguments[0], COMMANDS)
        return fail(f"there is no command {short(arguments[0])}{hint}; there are {', '.join(COMMANDS)}")
    arguments = with_new_flags(arguments, RENAMED.get(arguments[0] if arguments else "", {}))
    command = tyro.extras.subcommand_cli_from_dict(
        COMMANDS,
        prog="mnm",
        description="Joint model-policy optimisation: deep agents, exact on finite MDPs, the paper's figures."
        f" What JAX compiles is kept in the user's cache folder for the next start, unless a command has {FLAG}."
        f" With {TRACEBACK}, the error of an environment or agent of yours is shown in full.",
        args=shield_overrides(arguments) if arguments[:1] == ["sweep"] else arguments,
    )
    match command:
        case Resume():
            return resume(command)
        case Evaluate():
            return evaluate(command)
        case Certify():
            return certify(command)
        case Render():
            return render(command)
        case Export():
            return export(command)
        case Collect():
            return collect(command)
        case Sweep():
            return sweep(command)
        case Compare():
            return compare(command)
        case Report():
            return report(command)
        case Envs():
            return envs(command)
        case Reproduce():
            return reproduce(command)
        case Solve():
            return solve(command)
    return fail("the agent is missing; mnm train --help names them")
