"""A program of docs/howto as its page starts it, in a process that has imported the frameworks:

    page_program.py HOW DIRECTORY SCRIPT ARGUMENT...

HOW is python, torchrun, deepspeed, or accelerate:CONFIG, whose settings accelerate's own launcher turns into variables."""

import os
import runpy
import sys

import torch

how, directory, script, *arguments = sys.argv[1:]
sys.path[:0] = [directory, os.environ["PYTHONPATH"]]
os.chdir(directory)
torch.set_num_threads(1)

if how.startswith("accelerate:"):
    from accelerate.commands.launch import _validate_launch_command, launch_command_parser
    from accelerate.utils.launch import prepare_multi_gpu_env

    given = launch_command_parser().parse_args(["--config_file", how.partition(":")[2], script, *arguments])
    given, *_ = _validate_launch_command(given)
    own = set(os.environ)
    os.environ.update({k: v for k, v in prepare_multi_gpu_env(given).items() if k not in own})
if how == "deepspeed":
    import cpu_deepspeed  # noqa: F401
elif os.environ["UNSHARD_PAGE"] == "lightning":
    import lightning.pytorch as pl
    import lightning_run

    class Trainer(pl.Trainer):
        def __init__(self, *, accelerator, **settings):
            super().__init__(accelerator=lightning_run.Accelerator() if accelerator == "gpu" else accelerator, **settings)

    lightning_run.on_cpu()
    pl.Trainer, pl.strategies.FSDPStrategy = Trainer, lightning_run.Fsdp
elif how != "python":
    import cpu_fsdp  # noqa: F401

sys.argv = [script, *arguments]
runpy.run_path(script, run_name="__main__")

from leaving import leave  # noqa: E402

leave()
