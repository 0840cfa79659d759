"""`mnm resume RUN`: go on with a run."""

from __future__ import annotations

from dataclasses import dataclass

from mnm.commands.run_folder import RunFolder
from mnm.messages import UserError, fail


@dataclass(frozen=True)
class Resume(RunFolder):
    """Go on with an unfinished run from its last checkpoint, exactly as if it had never stopped.

    With --steps a finished one is trained further, as if it had been asked for so many from the start.
    Examples: mnm resume runs/Pendulum-v1-mnm_approx-seed0; mnm resume runs/Pendulum-v1-sac-seed0 --steps 20000
    """

    steps: int | None = None
    """Real steps in all, those done included; by default as many as the run was asked for."""


def resume(command: Resume) -> int:
    """The exit code: 0, 1 failed, 2 bad input, 128 + the signal that stopped it."""
    from mnm.training.driver import resume_run

    try:
        return resume_run(command.run, trusted=command.trust, steps=command.steps)
    except UserError as error:
        return fail(str(error))
