"""What Megatron-Bridge exports of Nemotron-H's checkpoints, several in one launch:

    torchrun --nproc_per_node=1 megatron_bridge_hybrid.py OUT FOLDER CASE...

FOLDER/CASE is what torch_dist_hybrid.py made, and OUT has what megatron_bridge.py writes."""

import logging
import sys

import torch
import torch.distributed as dist

import megatron_bridge
import torch_dist_hybrid
from leaving import leave


def loaded(case, checkpoint, hf):
    """megatron-core's own reading of it. A tensor that is not read stays NaN."""
    from megatron.core import dist_checkpointing

    *_, padded = torch_dist_hybrid.CASES[case]
    model = torch_dist_hybrid.build(hf, {}, padded, torch.bfloat16 if case.endswith("bf16") else torch.float32)
    with torch.no_grad():
        for tensor in [*model.parameters(), *model.buffers()]:
            tensor.fill_(float("nan"))
    model.load_state_dict(dist_checkpointing.load({"model": model.sharded_state_dict()}, checkpoint)["model"])
    return model


if __name__ == "__main__":
    from megatron.core import parallel_state

    torch_dist_hybrid.replace_kernels()
    dist.init_process_group("gloo")
    megatron_bridge.import_bridges()
    parallel_state.initialize_model_parallel()
    logging.disable(logging.WARNING)  # Bridge's, of each parameter that it does not map
    megatron_bridge.loaded = loaded
    for one in sys.argv[3:]:
        megatron_bridge.run(one, f"{sys.argv[2]}/{one}", f"{sys.argv[1]}/{one}")
    leave()
