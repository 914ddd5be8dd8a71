"""Megatron-Core's torch_dist checkpoints whose optimizer is saved as fully_sharded_model_space, several cases in one
launch:

    torchrun --nproc_per_node=4 torch_dist_model_space.py OUT CASE...

Each makes what torch_dist_optimizer.py makes of a case. megatron-core 0.13.1 saves it: later ones do not write this form.
"""

import sys

from installed import installed

sys.path.insert(0, str(installed("megatron-core-0.13.1", "megatron-core==0.13.1")))  # in front of the other one

import numpy

import torch_dist
import torch_dist_optimizer
from torch_dist import MOE

numpy.product = numpy.prod  # as it was called then

# As torch_dist_optimizer.CASES. In the first, the ranks of data parallelism share a matrix that is cut in columns (the
# output of attention), in the middle of a row; in the second, one that is not cut.
CASES = {
    "llama-tp2-space": ("llama", {"vocab_size": 121, "num_hidden_layers": 1, "tie_word_embeddings": True}, {"tp": 2},
                        {"padded": 128}),
    "qwen3_moe-ep2-space-bf16": ("qwen3_moe", MOE, {"ep": 2}, {"moe": True, "qk_norm": True}),
    "qwen2-pp2-space-bf16": ("qwen2", {"head_dim": 4}, {"pp": 2}, {"qkv_bias": True}),
}
moe_config = torch_dist.moe_config


def older_moe_config(hf, more):
    return {k: v for k, v in moe_config(hf, more).items() if k != "moe_shared_expert_gate"}


if __name__ == "__main__":
    torch_dist.moe_config = older_moe_config
    torch_dist_optimizer.CASES = {name: (*case, "fully_sharded_model_space") for name, case in CASES.items()}
    with torch_dist_optimizer.OnCpu():
        torch_dist.run_all(torch_dist_optimizer.run)
