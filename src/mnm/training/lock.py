"""One process at a time trains a run: it holds the lock on a file in the run's folder.

The kernel frees a lock whenever its owner dies, so that nothing is left to clean up after a kill, and another process
with the same number is not taken for the owner. What the file says is for the message alone.
"""

from __future__ import annotations

import fcntl
import json
import os
import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from mnm.training.spec import RunError

LOCK = "lock"


@contextmanager
def locked(folders: Sequence[Path]) -> Iterator[None]:
    """Nobody else trains the runs in the folders, which are made if they are not there; RunError if somebody does."""
    with ExitStack() as held:
        for folder in folders:
            held.enter_context(_locked(folder))
        yield


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    path = folder / LOCK
    try:
        folder.mkdir(parents=True, exist_ok=True)
        file = _acquire(path)
    except OSError as error:
        raise RunError(f"{folder}: {error.strerror}") from error
    try:
        owner = {"pid": os.getpid(), "host": socket.gethostname(), "started": time.strftime("%Y-%m-%d %H:%M:%S")}
        os.truncate(file, 0)
        os.write(file, f"{json.dumps(owner)}\n".encode())
        yield
    finally:
        path.unlink(missing_ok=True)  # while the lock is ours: who waits for it sees that the file is another one
        os.close(file)


def _acquire(path: Path) -> int:
    while True:
        file = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            said = os.read(file, 1000)
            os.close(file)
            raise RunError(f"{path.parent} is being trained by {_owner(said)}: wait for it, or stop it first") from None
        except OSError:
            return file  # a file system without locks: there the lock is nobody's and stops nobody
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(file), path.stat()):
                return file
        os.close(file)  # its owner has just finished and deleted it


def _owner(said: bytes) -> str:
    try:
        owner = json.loads(said)
        return f"process {owner['pid']} on {owner['host']} since {owner['started']}"
    except (ValueError, KeyError, TypeError):  # it has the lock, and has not yet said who it is
        return "another process"
