"""ShardedTensors load only in a process of the rank that saved them: such a process, without the others.

    sharded_tensors.py RANK WORLD retype PATH NAME DTYPE    one rank's part of a tensor in another type
    sharded_tensors.py RANK WORLD dump PATH OUT             what is local, as safetensors
"""

import sys

import torch
import torch.distributed as dist
from safetensors.torch import save_file
from torch.distributed._shard.sharded_tensor import ShardedTensor
from torch.testing._internal.distributed.fake_pg import FakeStore

rank, world, what, path = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4]
dist.init_process_group("fake", rank=rank, world_size=world, store=FakeStore())
state = torch.load(path, weights_only=False)
if what == "retype":
    tensor, dtype = state[sys.argv[5]], getattr(torch, sys.argv[6])
    [shard] = tensor.local_shards()
    shard.tensor = shard.tensor.to(dtype)
    tensor.metadata().tensor_properties.dtype = dtype
    torch.save(state, path)
else:
    local = {}
    for name, tensor in state.items():
        if isinstance(tensor, ShardedTensor):
            for i, shard in enumerate(tensor.local_shards()):
                assert shard.tensor.dtype == tensor.metadata().tensor_properties.dtype == tensor.dtype
                local[f"{name} {i}"] = shard.tensor.clone()
        else:
            local[name] = tensor.clone()
    save_file(local, sys.argv[5])
