"""The end of a rank. Left to themselves the ranks take their process groups apart while others are still at
work in them, and Python then takes apart what is left: on a busy machine gloo aborted the last one now and
then (SIGABRT), when everything was written. So they wait for each other, and end at once."""

import contextlib
import datetime
import os
import sys

import torch.distributed as dist

LONGEST = datetime.timedelta(minutes=10)


def wait_for_each_other():
    if dist.get_backend() == "gloo":
        dist.monitored_barrier(timeout=LONGEST)
    else:  # "cpu:gloo" has none that gives up
        dist.barrier()


def leave():
    if dist.is_initialized():
        with contextlib.suppress(RuntimeError):  # another failed: its exit status tells
            wait_for_each_other()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)
