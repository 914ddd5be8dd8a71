"""Megatron-FSDP's checkpoints (--ckpt-format fsdp_dtensor), several cases in one launch:

    torchrun --nproc_per_node=2 megatron_fsdp.py OUT CASE...

Each makes what torch_dist_optimizer.py makes of a case, saved by megatron-core's own functions, in the order in which
Megatron-LM 0.16.1 calls them (training/checkpointing.py, generate_state_dict and preprocess_fsdp_dtensor_state_dict; it is no
package). The model is in bf16 and its weights are saved in fp32, as the optimizer has them. There is no GPU: streams do
nothing, and process groups are gloo's. The optimizer is torch's AdamW and keeps its state as Transformer Engine's FusedAdam
does: for every parameter, also where the rank has no element of it, and the step in the param group.
"""

import argparse
import contextlib
import os
import re

import torch
import torch.distributed as dist

import torch_dist
import torch_dist_optimizer
from torch_dist import MOE, STEP
from torch_dist_optimizer import OnCpu, STATES, VALUES


class Stream:
    def __init__(self, *args, **kwargs):
        pass

    def wait_stream(self, other):
        pass


torch.cuda.Stream = Stream
torch.cuda.current_stream = Stream
torch.cuda.stream = lambda stream: contextlib.nullcontext()
torch.cuda.get_rng_state, torch.cuda.set_rng_state = torch.get_rng_state, lambda state: None

# case -> model_type, changes to torch_dist.TEXT, sizes of parallelism, more (torch_dist.build)
CASES = {
    "llama-dp2-fsdp": ("llama", {"tie_word_embeddings": True, "num_key_value_heads": 1}, {}, {}),
    "llama-tp2-fsdp": ("llama", {"vocab_size": 37}, {"tp": 2}, {"padded": 48}),
    "qwen2-tp2-dp2-fsdp": ("qwen2", {"head_dim": 4}, {"tp": 2}, {"qkv_bias": True}),
    "qwen3_moe-ep2-fsdp": ("qwen3_moe", MOE, {"ep": 2}, {"moe": True, "qk_norm": True}),
    "qwen3_moe-grouped-fsdp": ("qwen3_moe", MOE, {}, {"moe": True, "qk_norm": True, "grouped": True}),
}


class OnCpuOnly(OnCpu):
    """Megatron-FSDP makes devices too."""

    def __torch_function__(self, function, types, args=(), kwargs=None):
        if function is torch.device and args and str(args[0]).startswith("cuda"):
            return torch.device("cpu")
        return super().__torch_function__(function, types, args, kwargs)


def patch_megatron():
    from megatron.core.distributed.fsdp import mcore_fsdp_adapter

    mcore_fsdp_adapter.TELinear = type("TELinear", (), {})  # it is None without Transformer Engine, and isinstance fails
    from_group = mcore_fsdp_adapter.DeviceMesh.from_group
    mcore_fsdp_adapter.DeviceMesh.from_group = staticmethod(
        lambda group, device_type, *args, **kwargs: from_group(group, "cpu", *args, **kwargs))


def trained(config, model):
    """The wrapped model, and Megatron's optimizer after its steps."""
    from megatron.core import parallel_state
    from megatron.core.distributed import DistributedDataParallelConfig
    from megatron.core.distributed.fsdp.mcore_fsdp_adapter import FullyShardedDataParallel
    from megatron.core.optimizer import OptimizerConfig, get_megatron_optimizer
    from megatron.core.transformer.module import Float16Module

    wrapped = FullyShardedDataParallel(
        config, DistributedDataParallelConfig(
            use_distributed_optimizer=True, grad_reduce_in_fp32=True, use_megatron_fsdp=True, overlap_grad_reduce=True,
            overlap_param_gather=True, data_parallel_sharding_strategy="optim_grads_params"),
        Float16Module(config, model), device=torch.device("cpu"))
    optimizer = get_megatron_optimizer(
        OptimizerConfig(optimizer="adam", lr=1e-2, min_lr=1e-3, weight_decay=0.1, adam_beta1=0.8, adam_beta2=0.95,
                        adam_eps=1e-7, bf16=True, params_dtype=torch.bfloat16, clip_grad=1.0,
                        use_distributed_optimizer=True), [wrapped])
    groups, state = optimizer.optimizer.param_groups, optimizer.optimizer.state
    for p in (p for g in groups for p in g["params"]):
        state[p] = {"step": torch.tensor(0.0), "exp_avg": torch.zeros_like(p), "exp_avg_sq": torch.zeros_like(p)}
    schedule = torch_dist_optimizer.schedule_of(optimizer)
    for step in range(STEP):
        torch.manual_seed(100 * step + parallel_state.get_data_parallel_rank())  # ranks of tensors have equal norms
        for group in wrapped.param_and_grad_buffer.parameter_groups:
            group.main_grad_buffer.data.copy_(torch.randn(group.main_grad_buffer.data.shape))
        wrapped.param_and_grad_buffer.update_main_grads()
        optimizer.step()
        schedule.step(1)
    for group in groups:
        group["step"] = STEP
        for p in group["params"]:
            del state[p]["step"]
    return wrapped, optimizer


def parts(wrapped, optimizer):
    """Of each parameter what torch_dist_optimizer.live takes, of which this rank has a range."""
    for name, p in wrapped.param_and_grad_buffer.optimizer_named_parameters:
        group = next(g for g in optimizer.optimizer.param_groups if any(p is one for one in g["params"]))
        states = {"param": p} | optimizer.optimizer.state[p]
        yield (name.removeprefix("module."), tuple(p.orig_param.shape), p.orig_param, p.megatron_fsdp_slice.start,
               {k: states[k].detach().to_local().flatten().clone() for k in STATES}, {k: group[k] for k in VALUES})


def state_of(wrapped, optimizer, config):
    from megatron.core.distributed.fsdp.src.megatron_fsdp.uneven_dtensor import preprocess_state_dict_for_uneven_dtensor
    from megatron.core.transformer.fsdp_dtensor_checkpoint import (
        handle_experts_in_state_dict, handle_fp8_extra_state_case, handle_swiglu_in_state_dict)

    model = wrapped.module  # what unwrap_model leaves
    weights = model.state_dict_for_save_checkpoint()
    states = optimizer.sharded_state_dict({}, metadata={"distrib_optim_sharding_type": "fsdp_dtensor"})
    handle_fp8_extra_state_case(weights)
    weights, states = handle_swiglu_in_state_dict(model, weights, states)
    if config.num_moe_experts:
        weights = handle_experts_in_state_dict(weights, config.num_moe_experts)
    state = {"args": argparse.Namespace(iteration=STEP, num_attention_heads=config.num_attention_heads),
             "checkpoint_version": 3.0, "iteration": STEP, "model": weights, "optimizer": states}
    preprocess_state_dict_for_uneven_dtensor(state)
    return state


def grouped(state):
    """Transformer Engine's grouped experts, which need a GPU, have the number of the expert behind the name."""
    def name(key):
        return re.sub(r"local_experts\.(\d+)\.(linear_fc\d\.weight)", r"\2\1", key)

    model, optimizer = state["model"], state["optimizer"]
    return state | {"model": {name(k): t for k, t in model.items()},
                    "optimizer": {part: {name(k): t for k, t in of.items()} for part, of in optimizer.items()}}


def run(case, out):
    import mbridge  # noqa: F401
    import torch.distributed.checkpoint as dcp
    from megatron.core import parallel_state
    from safetensors.torch import load_file

    model_type, changes, sizes, more = CASES[case]
    hf = torch_dist.hf_model(model_type, changes, None).bfloat16()
    if dist.get_rank() == 0:
        hf.save_pretrained(f"{out}/hf")
        os.makedirs(f"{out}/run")
    dist.barrier()
    parallel_state.initialize_model_parallel(sizes.get("tp", 1), expert_model_parallel_size=sizes.get("ep", 1))
    config, model = torch_dist.build(hf.config, sizes, more, torch.bfloat16, None)
    config.bf16 = True
    bridge = torch_dist.bridge_of(hf.config, config, torch.bfloat16, more)
    torch_dist.fill(model, hf.config, bridge, torch_dist.text_weights(load_file(f"{out}/hf/model.safetensors")))
    wrapped, optimizer = trained(config, model)
    torch_dist_optimizer.save_live(torch_dist_optimizer.live(parts(wrapped, optimizer), bridge, 0), out)
    state = state_of(wrapped, optimizer, config)
    dcp.save(state_dict=grouped(state) if "grouped" in more else state,
             storage_writer=dcp.FileSystemWriter(f"{out}/run/iter_{STEP:07}"))
    parallel_state.destroy_model_parallel()  # torch's meshes go on with the groups
    dist.barrier()


if __name__ == "__main__":
    with OnCpuOnly():
        patch_megatron()
        torch_dist.run_all(run)
