"""Megatron-Core's torch_dist checkpoints with an optimizer as megatron-core 0.15.3 saves them, several cases in one launch:

    torchrun --nproc_per_node=2 torch_dist_015.py OUT CASE...

Each makes what torch_dist_optimizer.py makes of a case. Their .metadata is an object of Megatron's own class, which no
other version writes.
"""

import sys

from installed import installed

sys.path.insert(0, str(installed("megatron-core-0.15.3", "megatron-core==0.15.3")))  # in front of the other one

import numpy

import torch_dist
import torch_dist_optimizer
from torch_dist_optimizer import CASES

numpy.product = numpy.prod  # as it was called then

SAME = ("llama-tp2", "llama-tp2-buckets", "llama-dp2-buckets-bf16", "qwen2-pp2-buckets-bf16", "qwen3_moe-ep2-buckets",
        "qwen3_moe-dp2-buckets-bf16")
KINDS = {"space": "fully_sharded_model_space", "gathered": "dp_zero_gather_scatter"}
moe_config = torch_dist.moe_config


def older_moe_config(hf, more):
    return {k: v for k, v in moe_config(hf, more).items() if k != "moe_shared_expert_gate"}


def use_older():
    from megatron.core.optimizer.distrib_optimizer import DistributedOptimizer

    states = DistributedOptimizer._get_main_param_and_optimizer_states

    def without_step(self, param):
        """Of torch's Adam it is a tensor of each parameter, which 0.15 cannot put into a bucket; of those that Megatron
        uses on GPUs it is in the param groups."""
        return {k: t for k, t in states(self, param).items() if k != "step"}

    DistributedOptimizer._get_main_param_and_optimizer_states = without_step
    torch_dist.moe_config = older_moe_config
    torch_dist_optimizer.CASES = {f"015-{name}": CASES[name] for name in SAME} | {
        f"015-llama-{name}-bf16": (*CASES["llama-dp2-bf16"][:-1], kind) for name, kind in KINDS.items()}


if __name__ == "__main__":
    use_older()
    with torch_dist_optimizer.OnCpu():
        torch_dist.run_all(torch_dist_optimizer.run)
