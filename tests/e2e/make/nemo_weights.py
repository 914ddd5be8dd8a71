"""What NeMo 2 saves in weights/, with an optimizer, several cases in one launch:

    torchrun --nproc_per_node=4 nemo_weights.py OUT CASE...

Each makes what torch_dist_optimizer.py makes of a case, but run/model--step=2/weights in place of run/iter_0000002.
megatron-core 0.13.1 saves it, which NeMo 2.5 was released with, as NeMo has it save: names begin with "module.", because
the model is inside of a LightningModule; common.pt has Lightning's state, and the optimizer in a list.

Source: nemo_toolkit 2.5.3, lightning/megatron_parallel.py (_module_sharded_state_dict),
lightning/pytorch/strategies/megatron_strategy.py (save_checkpoint, sharded_state_dict_metadata), lightning/_strategy_lib.py
(optimizer_sharded_state_dict), lightning/io/pl.py (MegatronCheckpointIO).
"""

import collections
import pathlib
import shutil

import torch.distributed as dist

import torch_dist_model_space as space  # puts megatron-core 0.13.1 in front
import torch_dist
import torch_dist_optimizer
from torch_dist import STEP

CASES = {
    "llama-tp2-nemo-bf16": ("llama", {}, {"tp": 2}, {}, "fully_sharded_model_space"),
    "qwen3_moe-ep2-nemo": ("qwen3_moe", torch_dist.MOE, {"ep": 2}, {"moe": True, "qk_norm": True},
                           "fully_sharded_model_space"),
}


def save(state, out, content_metadata):
    from megatron.core import dist_checkpointing, parallel_state

    where = pathlib.Path(out) / "run" / f"model--step={STEP}" / "weights"
    if dist.get_rank() == 0:
        shutil.rmtree(f"{out}/run/iter_{STEP:07}")
        where.mkdir(parents=True)
    dist.barrier()
    lightning = {"epoch": 0, "global_step": STEP, "pytorch-lightning_version": "2.4.0", "state_dict": collections.OrderedDict(),
                 "loops": {"fit_loop": {"state_dict": {}}}, "callbacks": {}, "optimizer_states": {},
                 "lr_schedulers": [{"max_steps": 10, "last_epoch": STEP, "_step_count": STEP + 1, "_last_lr": [1e-3, 1e-3]}]}
    dist_checkpointing.save(lightning | {"sharded_state_dict": state["model"], "optimizer": [state["optimizer"]]}, where)
    parallel_state.destroy_model_parallel()
    dist.barrier()


def main():
    from megatron.core.models.gpt import GPTModel

    own = GPTModel.sharded_state_dict
    GPTModel.sharded_state_dict = lambda self, prefix="", *args, **kwargs: own(self, f"module.{prefix}", *args, **kwargs)
    torch_dist.moe_config = space.older_moe_config
    torch_dist.save = save
    torch_dist_optimizer.CASES = CASES
    with torch_dist_optimizer.OnCpu():
        torch_dist.run_all(torch_dist_optimizer.run)


if __name__ == "__main__":
    main()
