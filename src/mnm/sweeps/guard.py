"""Becomes a trial's program, but first ties it down: it dies with its parent, has one core, and its log for itself.

Usage: guard.py PARENT CORE PATIENCE PROGRAM ARGUMENT...; CORE is a number, or - for any; PATIENCE are the seconds in
which another process may still leave the run. Needs the standard library alone.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import signal
import sys
import time

SET_PARENT_DEATH_SIGNAL = 1


def main() -> None:
    """Standard output is the log: whoever holds its lock trains the run. The lock lasts as long as the program."""
    parent, core, patience, *program = sys.argv[1:]
    deadline = time.monotonic() + float(patience)
    while not lock(1):
        if time.monotonic() > deadline:
            sys.exit("mnm: another process is training this run")
        time.sleep(0.1)
    if sys.platform == "linux":
        # Not SIGTERM: a program that still saves would meet the one that has taken over.
        ctypes.CDLL(None).prctl(SET_PARENT_DEATH_SIGNAL, int(signal.SIGKILL))
        if core != "-":
            os.sched_setaffinity(0, {int(core)})
    if os.getppid() != int(parent):  # it died before it was watched
        sys.exit(1)
    os.execv(program[0], program)


def lock(file: int) -> bool:
    """Whether the lock is ours; on a filesystem without locks it is nobody's and stops nobody."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        pass
    return True


if __name__ == "__main__":
    main()
