"""transformers' save_pretrained(distributed_checkpoint=True), several cases in one launch:

    torchrun --nproc_per_node=W published.py OUT CASE...

CASE is fsdp or tp, with -tied where the embeddings are. Each makes OUT/CASE/run/model, as the ranks save it, and
OUT/CASE/plain, as one process saves the same model.
"""

import sys

import torch
import torch.distributed as dist
from transformers import AutoModelForCausalLM
from transformers.distributed import DistributedConfig

import models
from leaving import leave


def run(case, out):
    kind, _, tied = case.partition("-")
    if dist.get_rank() == 0:
        model = models.llama(torch.bfloat16, tie=bool(tied))
        del model.model.extra_buf, model.model.extra_count  # which transformers would not load
        model.save_pretrained(f"{out}/plain")
    dist.barrier()
    sizes = {"fsdp": {"fsdp_size": dist.get_world_size()},
             "tp": {"tp_size": dist.get_world_size(), "tp_plan": "auto"}}[kind]
    model = AutoModelForCausalLM.from_pretrained(f"{out}/plain", distributed_config=DistributedConfig(**sizes),
                                                 dtype=torch.bfloat16)
    model.save_pretrained(f"{out}/run/model", distributed_checkpoint=True)
    dist.barrier()


if __name__ == "__main__":
    dist.init_process_group("gloo")
    base, cases = sys.argv[1], sys.argv[2:]
    for one in cases:
        run(one, f"{base}/{one}")
    leave()
