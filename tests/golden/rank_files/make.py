"""Writes the per-rank files that tests/unit/test_{dtensor,rank_files}.c read: what four ranks save,
made in one process. Element i of a full tensor has the value i. Run with torch 2.13."""
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard
from torch.distributed.tensor._dtensor_spec import DTensorSpec, ShardOrderEntry
from torch.distributed.tensor.placement_types import _StridedShard
from torch.testing._internal.distributed.fake_pg import FakeStore

WORLD = 4


def count(*shape, dtype=torch.float32):
    n = torch.Size(shape).numel()
    return torch.arange(n, dtype=torch.float64).to(dtype).reshape(shape)


def part(tensor, n, i, placement=Shard(0)):
    """What torch itself cuts for part i of n."""
    return placement._split_tensor(tensor, n, with_padding=False)[0][i].clone()


def wrap(full, local, mesh, placements, **spec):
    meta = DTensor.from_local(local, mesh, placements, run_check=False, shape=full.shape,
                              stride=full.stride())
    if spec:
        s = meta._spec
        s = DTensorSpec(s.mesh, s.placements, s.tensor_meta, **spec)
        meta = DTensor(local, s, requires_grad=False)
    return meta


def model(rank, line, square):
    f, t = divmod(rank, 2)

    def rows(*shape, **kw):
        full = count(*shape, **kw)
        return wrap(full, part(full, WORLD, rank), line, [Shard(0)])

    out = {"even": rows(8, 3), "uneven": rows(5, 3, dtype=torch.bfloat16), "tiny": rows(1)}
    full = count(3, 5)
    out["columns"] = wrap(full, part(full, WORLD, rank, Shard(1)), line, [Shard(-1)])
    full = count(7, 3)
    strided = _StridedShard(0, split_factor=2)
    out["tp"] = wrap(full, part(part(full, 2, t), 2, f), square, [strided, Shard(0)])
    full = count(5, 6)
    out["both"] = wrap(full, part(part(full, 2, f), 2, t, Shard(1)), square, [Shard(0), Shard(1)])
    full = count(6, 2)
    out["hsdp"] = wrap(full, part(full, 2, t), square, [Replicate(), Shard(0)])
    full = count(9, 2)
    strided = _StridedShard(0, split_factor=2)
    out["loose"] = wrap(full, part(full, 2, f, strided), square, [strided, Replicate()])
    full = count(6, 3)
    strided = _StridedShard(1, split_factor=2)
    out["loose_columns"] = wrap(full, part(full, 2, f, strided), square, [strided, Replicate()])
    full = count(7)
    out["order"] = wrap(full, part(part(full, 2, t), 2, f), square, [Shard(0), Shard(0)],
                        shard_order=(ShardOrderEntry(0, (1, 0)),))
    full = count(8, 2)
    out["transposed"] = wrap(full, part(full, WORLD, rank).t().contiguous().t(), line, [Shard(0)])
    out["replicated"] = wrap(count(3), count(3), line, [Replicate()])
    out["buffer"] = count(4)
    out["differs"] = count(2) + rank
    out["tied"] = out["even"]
    out["_extra_state"] = {"scale": 2.0}
    return out


def optimizer(model, rank):
    state = {n: {"step": torch.tensor(3.0), "exp_avg": model[n], "exp_avg_sq": model[n]}
             for n in ("even", "tp")}
    state["tiny"] = {"momentum_buffer": model["tiny"], "note": "text"}
    groups = [{"lr": 0.5, "betas": (0.9, 0.95), "params": ["tp", "even"]},
              {"lr": 0.25, "params": ["tiny"]}]
    return {"state": state, "param_groups": groups}


for rank in range(WORLD):
    dist.init_process_group("fake", store=FakeStore(), rank=rank, world_size=WORLD)
    line = init_device_mesh("cpu", (WORLD,), mesh_dim_names=("fsdp",))
    square = init_device_mesh("cpu", (2, 2), mesh_dim_names=("fsdp", "tp"))
    m = model(rank, line, square)
    torch.save(m, f"model_rank_{rank}.pt")
    torch.save(optimizer(m, rank), f"optim_rank_{rank}.pt")
    if rank == 1:
        odd = {
            "partial": wrap(count(4), count(4), line, [Partial()]),
            "shape": wrap(count(8), count(3), line, [Shard(0)]),
            "dtype": wrap(count(8), count(2), line, [Shard(0)]),
            "strided": wrap(count(8), count(2), square, [_StridedShard(0, split_factor=4),
                                                         Shard(0)]),
        }
        odd["dtype"]._local_tensor = count(2).to(torch.bfloat16)
        torch.save(odd, "odd_rank_1.pt")
    dist.destroy_process_group()

torch.save({"state": {0: {"exp_avg": count(2)}}, "param_groups": [{"params": [0]}]}, "numbers.pt")
for rank in range(2):
    torch.save({"w": count(4) + rank}, f"unlike_rank_{rank}.pt")
    torch.save({"w": count(4 + rank)}, f"shapes_rank_{rank}.pt")
    torch.save({"w": count(4, dtype=(torch.float32, torch.float16)[rank])}, f"types_rank_{rank}.pt")
