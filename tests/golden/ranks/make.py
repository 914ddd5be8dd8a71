"""The files beside this one: what two ranks of torch 2.13 save in veRL's way (optimizer.state_dict()).

    torchrun --nproc_per_node=2 make.py

fsdp2: DTensors under numbers. orig: FSDP1 with use_orig_params=True, stretches of flattened parameters.
What a moment holds tells its place: exp_avg is 100 * parameter + element, exp_avg_sq the same + 0.5."""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import (FullyShardedDataParallel, ShardedOptimStateDictConfig,
                                    ShardedStateDictConfig, StateDictType, fully_shard)

HERE = os.path.dirname(os.path.abspath(__file__))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(3, 2)
        self.lin = nn.Linear(2, 3)
        self.register_buffer("buf", torch.arange(2.0))

    def forward(self, ids):
        return self.lin(self.emb(ids))


def save(name, model, weights):
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, foreach=False)
    model(torch.tensor([0, 1, 2])).sum().backward()
    optimizer.step()
    state, at = optimizer.state_dict(), dist.get_rank()
    for number, values in state["state"].items():
        for key, offset in (("exp_avg", 0), ("exp_avg_sq", 0.5)):
            fill(values[key], number, offset, STARTS[name][at].get(number, 0))
    os.makedirs(f"{HERE}/{name}", exist_ok=True)
    torch.save(weights(), f"{HERE}/{name}/model_world_size_2_rank_{at}.pt")
    torch.save(state, f"{HERE}/{name}/optim_world_size_2_rank_{at}.pt")


# Where rank 1's part of a parameter starts.
STARTS = {"fsdp2": [{}, {0: 4, 1: 4, 2: 2}], "orig": [{}, {}]}


def fill(tensor, number, offset, start):
    local = getattr(tensor, "_local_tensor", tensor)
    at = torch.arange(start, start + local.numel(), dtype=torch.float32)
    local.copy_((100 * number + offset + at).view(local.shape))


def starts_of_orig(model):
    """FSDP1 cuts the unit anywhere: count what rank 0 has."""
    mine = {i: p.numel() for i, p in enumerate(model.parameters())}
    every = [None, None]
    dist.all_gather_object(every, mine)
    STARTS["orig"][1] = every[0]


if __name__ == "__main__":
    dist.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (2,), mesh_dim_names=("fsdp",))
    torch.manual_seed(0)
    one = Net()
    fully_shard(one, mesh=mesh)
    save("fsdp2", one, one.state_dict)
    two = FullyShardedDataParallel(Net(), device_mesh=mesh, use_orig_params=True,
                                   device_id=torch.device("cpu"))
    starts_of_orig(two)
    with FullyShardedDataParallel.state_dict_type(
            two, StateDictType.SHARDED_STATE_DICT, ShardedStateDictConfig(offload_to_cpu=False),
            ShardedOptimStateDictConfig(offload_to_cpu=False)):
        save("orig", two, two.state_dict)
    dist.destroy_process_group()
