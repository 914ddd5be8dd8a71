"""Make megatron/ beside this file: what megatron-core 0.16.1 itself saves (torch_dist) at two
tensor-parallel ranks, on CPU, and live.safetensors, what was to be saved.

    torchrun --nproc_per_node=2 make_megatron.py DIR

needs megatron-core 0.16.1, which the tests do not. Two layers stacked in one tensor of each kind, the
optimizer's moments, objects of one rank and of one layer each.
"""
import io
import os
import sys

import torch
import torch.distributed as dist


def weights():
    g = torch.Generator().manual_seed(0)
    return {"embedding.word_embeddings.weight": torch.randn(10, 4, generator=g),
            "decoder.layers.self_attention.linear_qkv.weight": torch.randn(2, 12, 4, generator=g),
            "decoder.layers.mlp.linear_fc2.weight": torch.randn(2, 4, 6, generator=g),
            "decoder.layers.mlp.linear_fc1.layer_norm_weight": torch.randn(2, 4, generator=g),
            "decoder.final_layernorm.weight": torch.randn(4, generator=g).bfloat16()}


# Along which dimension of a layer's tensor tensor parallelism cuts; the others are replicas.
CUT = {"embedding.word_embeddings.weight": 0, "decoder.layers.self_attention.linear_qkv.weight": 0,
       "decoder.layers.mlp.linear_fc2.weight": 1}


def sharded(full, prefix, rank, world):
    from megatron.core.dist_checkpointing.mapping import ShardedTensor

    out = {}
    for name, whole in full.items():
        layers = list(enumerate(whole)) if ".layers." in name else [(None, whole)]
        for i, tensor in layers:
            stack = [] if i is None else [(0, i, len(whole))]
            replica = 0 if name in CUT else rank
            if name in CUT:
                dim = CUT[name]
                tensor = tensor.chunk(world, dim)[rank].contiguous()
                stack.append((dim + (i is not None), rank, world))
            out[f"{i}.{name}"] = ShardedTensor.from_rank_offsets(
                prefix + name, tensor, *stack, prepend_axis_num=int(i is not None),
                replica_id=replica)
    return out


def main():
    torch.cuda.current_device = lambda: torch.device("cpu")  # there is no GPU
    torch.cuda.synchronize = lambda *args, **kwargs: None
    from megatron.core import dist_checkpointing
    from megatron.core.dist_checkpointing.mapping import ShardedObject

    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    full = weights()
    moments = {n: t * 0.5 for n, t in full.items() if n in CUT}
    state = {"model": sharded(full, "", rank, world),
             "optimizer": sharded(moments, "optimizer.state.exp_avg.", rank, world),
             "checkpoint_version": 3.0, "iteration": 10}
    for i in range(2):
        state["model"][f"{i}.extra"] = ShardedObject(
            "decoder.layers.self_attention.core_attention._extra_state", io.BytesIO(b""), (2,), (i,),
            replica_id=rank)
    state["rng_state"] = ShardedObject("rng_state", [{"random_rng_state": 1}], (1, 1), (0, 0),
                                       replica_id=rank)
    out = f"{sys.argv[1]}/iter_0000010"
    os.makedirs(out, exist_ok=True)
    dist.barrier()
    dist_checkpointing.save(state, out)
    if rank == 0:
        from safetensors.torch import save_file

        live = {**full, **{f"optimizer.state.exp_avg.{n}": t for n, t in moments.items()}}
        save_file(live, f"{sys.argv[1]}/live.safetensors")
    dist.barrier()


if __name__ == "__main__":  # it starts processes of its own
    main()
