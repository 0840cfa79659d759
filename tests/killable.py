"""`mnm` in processes of their own, forked from one that has imported what it needs: a start costs little.

Some are to be killed. Where a fresh interpreter is the point, a test starts one.
"""

import multiprocessing
import os
import runpy
import subprocess
import sys
import tempfile
from pathlib import Path

FORKING = multiprocessing.get_context("forkserver")
FORKING.set_forkserver_preload(["mnm.cli", "mnm.commands.train", "mnm.training.driver", "mnm.agents"])


def started(*command, stderr=os.devnull):
    """The process; what it says of errors goes into a file."""
    process = FORKING.Process(target=_to_be_killed, args=(_words(command), str(stderr)))
    process.start()
    return process


def finished(*command, cwd=None, script=None, timeout=300):
    """`mnm`, or a script, run to its end in a folder: its exit code, and what it printed."""
    with tempfile.TemporaryDirectory() as folder:
        out, err = Path(folder, "out"), Path(folder, "err")
        where = str(cwd or os.getcwd())
        process = FORKING.Process(target=_in_folder, args=(_words(command), where, script, str(out), str(err)))
        process.start()
        process.join(timeout)
        if process.is_alive():
            process.kill()
            raise TimeoutError(f"{command} takes more than {timeout} s: {err.read_text()}")
        return subprocess.CompletedProcess(command, process.exitcode, out.read_text(), err.read_text())


def _words(command):
    return [str(word) for word in command]


def _to_be_killed(arguments, stderr):
    import jax

    # It reads the programs of the tests' cache, and writes none: it may be killed halfway.
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 1e9)
    _run(arguments, None, os.devnull, stderr)


def _in_folder(arguments, folder, script, stdout, stderr):
    os.chdir(folder)
    _run(arguments, script, stdout, stderr)


def _run(arguments, script, stdout, stderr):
    from mnm.cli import main

    for stream, path in ((1, stdout), (2, stderr)):
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), stream)
    sys.argv = [str(script or "mnm"), *arguments]
    if script is None:
        main()
    else:
        runpy.run_path(str(script), run_name="__main__")
