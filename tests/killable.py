"""`mnm` in processes that can be killed, forked from one that has imported what it needs: a start costs little."""

import multiprocessing
import os
import sys

FORKING = multiprocessing.get_context("forkserver")
FORKING.set_forkserver_preload(["mnm.cli", "mnm.commands.train", "mnm.training.driver", "mnm.agents"])


def started(*command, stderr=os.devnull):
    """The process; what it says of errors goes into a file."""
    process = FORKING.Process(target=_command, args=([str(word) for word in command], str(stderr)))
    process.start()
    return process


def _command(arguments, stderr):
    import jax

    from mnm.cli import main

    # It reads the programs of the tests' cache, and writes none: it may be killed halfway.
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 1e9)
    for stream, path in ((1, os.devnull), (2, stderr)):
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), stream)
    sys.argv = ["mnm", *arguments]
    main()
