"""Runs scripts on several ranks as torchrun does, without a start of Python and an import of the frameworks for each
rank (ten seconds of CPU time): this process has imported them, and forks. One is enough for all processes that test.

    launcher.py SOCKET      serves at this address until its stdin is closed

A request is a line of JSON: script, arguments, world (0: one process, outside of any group), environment (added to
that of this process), output (a file for what all processes print). The answer is a line: 0, or how the first process
that failed ended, as subprocess has it. Who connects asks for one after the other; several may be connected."""

import atexit
import functools
import gc
import importlib
import json
import os
import re
import runpy
import select
import signal
import socket
import sys
import threading

LONGEST_S = 1200  # what takes longer hangs, on the slowest machine

# Each rank of these would take half a second to import Megatron. Of the other scripts that use it, some put modules of their
# own in the place of what it imports, and the rest run with --long alone.
OF_MEGATRON = {"megatron_fsdp.py", "megatron_ranks.py", "torch_dist.py", "torch_dist_015.py", "torch_dist_families.py",
               "torch_dist_load.py", "torch_dist_model_space.py", "torch_dist_optimizer.py", "torch_dist_parallel.py",
               "torch_dist_processes.py", "torch_dist_vision.py"}


@functools.cache
def preload():
    re._MAXCACHE = 1 << 16  # transformers has 1,000 expressions for weights' names: Python would forget and compile them again
    os.environ.setdefault("DS_ACCELERATOR", "cpu")  # before deepspeed is imported, as make/cpu_deepspeed.py

    import accelerate  # noqa: F401
    import deepspeed  # noqa: F401: Accelerate imports it in every run that saves
    import lightning.pytorch  # noqa: F401
    import safetensors.torch  # noqa: F401
    import torch
    import torch.distributed.checkpoint  # noqa: F401
    import torch.distributed.fsdp  # noqa: F401
    import transformers.trainer  # noqa: F401
    from transformers.conversion_mapping import get_checkpoint_conversion_mapping

    torch.compile(lambda: None)  # DeepSpeed has compiled functions, which import the compiler
    get_checkpoint_conversion_mapping("llama")  # makes and keeps that of all families

    # Frameworks collect garbage in every run: what is there now is none. Python would look for it each time that 700 objects
    # are there, a sixth of a short run's time.
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000)

    # What a script sets up before it imports this must not be too late, and a thread would not be forked.
    assert "megatron" not in sys.modules
    assert len(os.listdir("/proc/self/task")) == 1


def end():
    """As sys.exit(), but Python takes nothing apart: a thread of gloo that lets go of a tensor meanwhile ends the process
    by SIGABRT (github.com/pytorch/pytorch/issues/190489)."""
    threading._shutdown()
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


def run(request, environment):
    """The script, in this process, which ends with it."""
    os.environ.update(environment)
    sys.argv = [request["script"], *request["arguments"]]
    sys.path[0] = os.path.dirname(request["script"])
    runpy.run_path(request["script"], run_name="__main__")
    end()


def rank_environment(rank, world, port):
    """What torchrun --standalone gives; the store is served by its agent, here by the process that waits."""
    of_all = {"WORLD_SIZE": world, "LOCAL_WORLD_SIZE": world, "ROLE_WORLD_SIZE": world, "GROUP_WORLD_SIZE": 1,
              "GROUP_RANK": 0, "ROLE_NAME": "default", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port,
              "TORCHELASTIC_RESTART_COUNT": 0, "TORCHELASTIC_MAX_RESTARTS": 0, "TORCHELASTIC_RUN_ID": "tests",
              "TORCHELASTIC_USE_AGENT_STORE": True}
    return {k: str(v) for k, v in {**of_all, "RANK": rank, "LOCAL_RANK": rank, "ROLE_RANK": rank}.items()}


def fork_rank(request, rank):
    """-> its process, and a pipe on which it waits for the port of the store: whoever serves that has threads."""
    port_read, port_write = os.pipe()
    pid = os.fork()
    if pid:
        os.close(port_read)
        return pid, port_write
    os.close(port_write)
    signal.alarm(LONGEST_S)
    with os.fdopen(port_read) as pipe:
        port = int(pipe.readline())
    run(request, {**request["environment"], **rank_environment(rank, request["world"], port)})


def wait_for(pids):
    """All of them; when one fails, the others are ended, because they would wait for it. -> how the first failed"""
    failed = 0
    while pids:
        pid, status = os.wait()
        pids.remove(pid)
        failed = failed or os.waitstatus_to_exitcode(status)
        if failed:
            for other in pids:
                os.kill(other, signal.SIGKILL)
    return failed


def import_megatron(script):
    """Once for all ranks of a script that uses it."""
    sys.path[0] = os.path.dirname(script)
    if os.path.basename(script) in OF_MEGATRON:
        runpy.run_path(script, run_name="imported")  # what it sets up must not be too late
        importlib.import_module("mbridge")
        importlib.import_module("megatron.core.dist_checkpointing")
        assert len(os.listdir("/proc/self/task")) == 1  # a thread would not be forked


def run_ranks(request):
    import_megatron(request["script"])
    ranks = [fork_rank(request, rank) for rank in range(request["world"])]
    from torch.distributed import TCPStore

    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)  # takes a port that is free
    for _, pipe in ranks:
        os.write(pipe, f"{store.port}\n".encode())
        os.close(pipe)
    return wait_for([pid for pid, _ in ranks])


def serve(request):
    """In a process of its own, which is 0 or 1 at its end."""
    output = os.open(request["output"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for fd, here in ((nothing, 0), (output, 1), (output, 2)):
        os.dup2(fd, here)
    signal.alarm(LONGEST_S)
    if not request["world"]:
        run(request, request["environment"])
    failed = run_ranks(request)
    sys.stdout.flush()
    os._exit(1 if failed else 0)


def answer(client):
    """What one client asks for, in a process of its own, which ends with it."""
    with client, client.makefile("rw") as lines:
        for line in lines:
            pid = os.fork()
            if not pid:
                serve(json.loads(line))
            lines.write(f"{os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])}\n")
            lines.flush()
    os._exit(0)


def main(address):
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(address)
        server.listen()
        while sys.stdin not in select.select([server, sys.stdin], [], [])[0]:
            preload()
            client, _ = server.accept()
            if not os.fork():
                server.close()
                answer(client)
            client.close()


if __name__ == "__main__":
    main(sys.argv[1])
