#!/usr/bin/env python3
"""Writes the metadata beside it: make.py (made with torch 2.13; two gloo ranks). torch2.2.metadata is of
a model saved by torch 2.2.2 (FSDP1, ShardedTensor, bf16, two ranks) and is not made here."""
import os
import pickle
import shutil
import sys
import tempfile
import types
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.metadata import MetadataIndex
from torch.distributed.checkpoint.planner import SavePlan, WriteItem, WriteItemType
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor

here = os.path.dirname(os.path.abspath(__file__))


def save(rank, port, collectives, path):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RANK=str(rank), WORLD_SIZE="2")
    dist.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (2,))

    def shard(*shape):
        return distribute_tensor(torch.arange(float(torch.Size(shape).numel())).reshape(shape), mesh,
                                 [Shard(0)])

    state = {
        "model": {"z.weight": shard(5, 3), "a.weight": shard(1, 4), "steps": torch.tensor(7)},
        "optimizer": {"param_groups": [{"lr": 0.1, "betas": (0.9, 0.999), "t": torch.ones(2)}]},
    }
    dcp.save(state, checkpoint_id=path, use_collectives=collectives)
    dist.destroy_process_group()


def main():
    for collectives, names in ((True, {".metadata": "whole"}),
                               (False, {f"__{r}.metadata": f"rank{r}" for r in (0, 1)})):
        with tempfile.TemporaryDirectory() as top:
            path = os.path.join(top, "ckpt")
            torch.multiprocessing.spawn(save, (29501 + collectives, collectives, path), 2)
            for source, name in names.items():
                shutil.copy(os.path.join(path, source), os.path.join(here, name + ".metadata"))
    # Megatron-Core's torch_dist: no paths, the plans kept, objects keyed like 'rng_state/shard_0_1'.
    with open(os.path.join(here, "whole.metadata"), "rb") as f:
        meta = pickle.load(f)
    meta.planner_data = None
    meta.all_local_plans = [SavePlan([WriteItem(MetadataIndex("model.steps"), WriteItemType.TENSOR)])]
    with open(os.path.join(here, "megatron.metadata"), "wb") as f:
        pickle.dump(meta, f, 4)
    of_core_015(meta)


def of_core_015(meta):
    """megatron-core 0.15 derives a class from torch's, with a field of its own."""
    module = sys.modules["megatron.core.dist_checkpointing.strategies.torch"] = types.ModuleType("torch")
    module.MCoreMetadata = type("MCoreMetadata", (), {"__module__": "megatron.core.dist_checkpointing.strategies.torch"})
    own = module.MCoreMetadata()
    vars(own).update(vars(meta), mcore_data={k: {} for k in meta.state_dict_metadata})
    with open(os.path.join(here, "megatron0.15.metadata"), "wb") as f:
        pickle.dump(own, f, 4)


if __name__ == "__main__":
    main()
