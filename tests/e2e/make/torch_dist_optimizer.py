"""Megatron-Core's torch_dist checkpoints with an optimizer, several cases in one launch:

    torchrun --nproc_per_node=2 torch_dist_optimizer.py OUT CASE...

Each makes OUT/CASE/hf, a tiny model as save_pretrained writes it, and OUT/CASE/run/iter_0000002, that model after two
steps of Megatron's own optimizer, saved by megatron-core. OUT/CASE/live/STATE/ has what the ranks then had in memory of
param (the fp32 copy), exp_avg and exp_avg_sq, converted by mbridge as if it were the model's weights, and
OUT/CASE/live/groups.json the values of the param group that each parameter was in.
"""

import argparse
import json
import os
import re
import shutil

import torch
import torch.distributed as dist

from torch.overrides import TorchFunctionMode

import torch_dist
from torch_dist import GPT_OSS, MOE, STEP

STATES = ("param", "exp_avg", "exp_avg_sq")
VALUES = ("lr", "betas", "eps", "weight_decay")
ONE_BY_ONE = {"singleton_local_shards": True}
ALIGNED = {"hidden_size": 64}  # else torch refuses what 0.16.1 makes of the bucket in front of tied embeddings
SEVERAL = {"bucket_size": 1000}  # elements, from which on a bucket is full

# case -> model_type, changes to torch_dist.TEXT, sizes of parallelism, more (torch_dist.build), how the optimizer is
# saved: a sharding type of the distributed optimizer, or "plain", which is not distributed
CASES = {
    "llama-tp2": ("llama", {"vocab_size": 37}, {"tp": 2}, {"padded": 48}, "fully_reshardable"),
    "llama-dp2-bf16": ("llama", {"tie_word_embeddings": True, "num_key_value_heads": 1}, {}, {}, "fully_reshardable"),
    "qwen2-pp2": ("qwen2", {"head_dim": 4}, {"pp": 2}, {"qkv_bias": True}, "plain"),
    "qwen2-tp2-bf16": ("qwen2", {"head_dim": 4}, {"tp": 2}, {"qkv_bias": True}, "plain"),
    "qwen3_moe-ep2-bf16": ("qwen3_moe", MOE, {"ep": 2}, {"moe": True, "qk_norm": True}, "fully_reshardable"),
    "qwen3_moe-tp2-older": ("qwen3_moe", MOE, {"tp": 2}, {"moe": True, "qk_norm": True, "qk_decay": True},
                            "fully_reshardable"),
    "qwen3_moe-one-by-one-bf16": ("qwen3_moe", MOE, {"ep": 2}, {"moe": True, "qk_norm": True, "metadata": ONE_BY_ONE},
                                  "fully_reshardable"),
    "gpt_oss-ep2-bf16": ("gpt_oss", GPT_OSS, {"ep": 2}, {"moe": True, "bias": True, "sinks": True},
                         "fully_reshardable"),
    "gpt_oss-one-by-one": ("gpt_oss", GPT_OSS, {"pp": 2},
                           {"moe": True, "bias": True, "sinks": True, "metadata": ONE_BY_ONE}, "fully_reshardable"),
    "llama-tp2-buckets": ("llama", {}, {"tp": 2}, {}, "dp_reshardable"),
    "llama-dp2-buckets-bf16": ("llama", {"tie_word_embeddings": True, "num_key_value_heads": 1} | ALIGNED, {}, SEVERAL,
                               "dp_reshardable"),
    "qwen2-pp2-buckets-bf16": ("qwen2", {"head_dim": 4, "tie_word_embeddings": True, "num_hidden_layers": 3} | ALIGNED,
                               {"pp": 2, "first": 1}, {"qkv_bias": True}, "dp_reshardable"),
    "qwen3_moe-ep2-buckets": ("qwen3_moe", MOE, {"ep": 2}, {"moe": True, "qk_norm": True}, "dp_reshardable"),
    "qwen3_moe-dp2-buckets-bf16": ("qwen3_moe", MOE, {}, {"moe": True, "qk_norm": True} | SEVERAL, "dp_reshardable"),
    "gpt_oss-ep2-buckets-bf16": ("gpt_oss", GPT_OSS, {"ep": 2}, {"moe": True, "bias": True, "sinks": True},
                                 "dp_reshardable"),
    "qwen3_moe-one-by-one-buckets-bf16": ("qwen3_moe", MOE, {"ep": 2},
                                          {"moe": True, "qk_norm": True, "metadata": ONE_BY_ONE}, "dp_reshardable"),
}
CUDA_TYPES = {torch.bfloat16: "torch.cuda.BFloat16Tensor", torch.float32: "torch.cuda.FloatTensor"}


class OnCpu(TorchFunctionMode):
    """Megatron's optimizers ask for "cuda", and for the types of its tensors."""

    def __torch_function__(self, function, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        if str(kwargs.get("device", "")).startswith("cuda"):
            kwargs["device"] = "cpu"
        if function is torch.Tensor.type and len(args) == 1 and not kwargs:
            return CUDA_TYPES.get(args[0].dtype) or function(*args)
        return function(*args, **kwargs)


def schedule_of(optimizer):
    from megatron.core.optimizer_param_scheduler import OptimizerParamScheduler

    return OptimizerParamScheduler(
        optimizer, init_lr=0.0, max_lr=1e-2, min_lr=1e-3, lr_warmup_steps=0, lr_decay_steps=10, lr_decay_style="cosine",
        start_wd=0.1, end_wd=0.1, wd_incr_steps=10, wd_incr_style="constant")


def ddp_config(distributed, more):
    from megatron.core.distributed import DistributedDataParallelConfig

    return DistributedDataParallelConfig(use_distributed_optimizer=distributed, grad_reduce_in_fp32=True,
                                         bucket_size=more.get("bucket_size"))


def optimizer_config(distributed, dtype, **more):
    from megatron.core.optimizer import OptimizerConfig

    return OptimizerConfig(optimizer="adam", lr=1e-2, min_lr=1e-3, weight_decay=0.1, adam_beta1=0.8, adam_beta2=0.95,
                           adam_eps=1e-7, bf16=dtype == torch.bfloat16, params_dtype=dtype, clip_grad=1.0,
                           use_distributed_optimizer=distributed, **more)


def set_gradients(model, step):
    torch.manual_seed(step)
    for param in model.parameters():
        if getattr(param, "shared_embedding", False):  # stages of a pipeline that have a copy sum its gradients
            torch.manual_seed(STEP + step)
        param.main_grad.copy_(torch.randn(param.shape))


def trained(config, model, kind, more, dtype):
    """Megatron's optimizer after its steps."""
    from megatron.core.distributed import DistributedDataParallel
    from megatron.core.optimizer import get_megatron_optimizer

    distributed = kind != "plain"
    qk_decay = {"apply_wd_to_qk_layernorm": True} if "qk_decay" in more else {}  # no older one has that
    wrapped = DistributedDataParallel(config, ddp_config(distributed, more), model)
    optimizer = get_megatron_optimizer(optimizer_config(distributed, dtype, **qk_decay), [wrapped])
    schedule = schedule_of(optimizer)
    for step in range(STEP):
        set_gradients(model, step)
        optimizer.step()
        schedule.step(1)
    return optimizer


def parts_of(optimizer, param):
    """What `optimizer` has of `param` on this rank: the number of its first element, the states, and the values of its
    param group. None: it is another's."""
    from megatron.core.optimizer.distrib_optimizer import DistributedOptimizer

    if isinstance(optimizer, DistributedOptimizer):
        if param not in optimizer.model_param_group_index_map:
            return None
        states = optimizer._get_main_param_and_optimizer_states(param)
        first = optimizer._get_model_param_range_map(param)["param"].start
        group = optimizer.optimizer.param_groups[optimizer.model_param_group_index_map[param][0]]
    else:
        main = getattr(param, "main_param", param)
        if main not in optimizer.optimizer.state:
            return None
        states, first = {"param": main} | optimizer.optimizer.state[main], 0
        group = next(g for g in optimizer.optimizer.param_groups if any(p is main for p in g["params"]))
    return first, {k: states[k].detach().float().flatten().clone() for k in STATES}, {k: group[k] for k in VALUES}


def parts(model, optimizer):
    """Of each parameter that this rank has a part of: name, shape on this rank, the parameter, and parts_of."""
    for name, param in model.named_parameters():
        for one in optimizer.chained_optimizers:
            part = parts_of(one, param)
            if part:
                yield name, tuple(param.shape), param, *part


def live(parts, bridge, first_layer):
    """state -> published name -> tensor; published name -> the values of its param group."""
    from megatron.core import parallel_state

    experts = bridge.config.num_moe_experts or 0
    first_expert = parallel_state.get_expert_model_parallel_rank() * (
        experts // parallel_state.get_expert_model_parallel_world_size())
    rank, mine = parallel_state.get_tensor_model_parallel_rank(), []
    for name, shape, param, *part in parts:
        whole = torch_dist.name_in_bridge(name, first_layer, first_expert)
        cut = {k: getattr(param, k, None) for k in ("tensor_model_parallel", "partition_dim")}
        mine.append((whole, rank if cut["tensor_model_parallel"] else 0, shape, cut, *part))
    gathered = [None] * dist.get_world_size()
    dist.all_gather_object(gathered, mine)
    flat, kept, groups = {}, {}, {}
    for name, part, shape, cut, first, states, group in (x for ranks in gathered for x in ranks):
        kept[name] = shape, cut, group
        for state, values in states.items():
            buffer = flat.setdefault((state, name, part), torch.full((torch.Size(shape).numel(),), float("nan")))
            buffer[first:first + values.numel()] = values
    out = {state: {} for state in STATES}
    for state, name in {key[:2] for key in flat}:
        shape, cut, group = kept[name]
        parts = sorted(part for *key, part in flat if key == [state, name])
        shards = [flat[state, name, part].reshape(shape) for part in parts]
        assert not any(t.isnan().any() for t in shards), name
        param = torch.empty(0)
        param.tensor_model_parallel, param.partition_dim = cut["tensor_model_parallel"], cut["partition_dim"]
        whole = bridge._weight_merge_across_tp(name, shards, param) if len(shards) > 1 else shards[0]
        names, tensors = published(bridge, name, whole)
        out[state].update(zip(names, tensors))
        groups.update(dict.fromkeys(names, group))
    if bridge.hf_config.model_type == "gpt_oss":
        groups = groups_of_gpt_oss(groups)
        out = {state: experts_of_gpt_oss(tensors) for state, tensors in out.items()}
    return out, groups


EXPERT = re.compile(r"(.*\.mlp\.experts\.)(\d+)\.(gate|up|down)_proj\.(weight|bias)")


def name_of_gpt_oss(name):
    """In which tensor it has this tensor of one expert."""
    one = EXPERT.fullmatch(name)
    return one and f"{one[1]}{'down' if one[3] == 'down' else 'gate_up'}_proj{'_bias' if one[4] == 'bias' else ''}"


def experts_of_gpt_oss(tensors):
    """What torch_dist.each_expert_of_gpt_oss takes apart."""
    out, experts = {}, {}
    for name, tensor in tensors.items():
        one = EXPERT.fullmatch(name)
        if not one:
            out[name] = tensor
            continue
        parts = experts.setdefault(name_of_gpt_oss(name), {})
        parts.setdefault(one[3], {})[int(one[2])] = tensor.T if one[4] == "weight" else tensor
    for name, parts in experts.items():
        stacked = {part: torch.stack([of[e] for e in range(len(of))]) for part, of in parts.items()}
        out[name] = stacked["down"] if "down" in stacked else torch.stack((stacked["gate"], stacked["up"]), -1).flatten(-2)
    return out


def groups_of_gpt_oss(groups):
    out = {}
    for name, values in groups.items():
        whole = name_of_gpt_oss(name) or name
        assert out.setdefault(whole, values) == values, whole
    return out


def published(bridge, name, tensor):
    names = torch_dist.hf_names(bridge, name)
    if ".mlp.experts." in name and ".bias" in name:  # mbridge has no family whose experts have biases
        return names, tensor.chunk(len(names))
    try:
        return bridge._weight_to_hf_format(name, tensor)
    except NotImplementedError:
        for plain, fused in torch_dist.FUSED.items():
            name = name.replace(plain, fused)
        return bridge._weight_to_hf_format(name, tensor)


def save_live(live, out):
    from safetensors.torch import save_file

    states, groups = live
    for state, tensors in states.items():
        if dist.get_rank() == 0:
            shutil.copytree(f"{out}/hf", f"{out}/live/{state}")
            save_file({n: t.contiguous() for n, t in tensors.items()}, f"{out}/live/{state}/model.safetensors",
                      metadata={"format": "pt"})
            with open(f"{out}/live/groups.json", "w") as f:
                json.dump(groups, f)


def run(case, out):
    import mbridge  # noqa: F401
    from megatron.core import parallel_state
    from safetensors.torch import load_file

    model_type, changes, sizes, more, kind = CASES[case]
    dtype = torch.bfloat16 if case.endswith("bf16") else torch.float32
    hf = torch_dist.hf_model(model_type, changes, None).to(dtype)
    if dist.get_rank() == 0:
        hf.save_pretrained(f"{out}/hf")
        os.makedirs(f"{out}/run/iter_{STEP:07}")
    dist.barrier()
    parallel_state.initialize_model_parallel(sizes.get("tp", 1), sizes.get("pp", 1),
                                             expert_model_parallel_size=sizes.get("ep", 1))
    config, model = torch_dist.build(hf.config, sizes, more, dtype, None)
    bridge = torch_dist.bridge_of(hf.config, config, dtype, more)
    torch_dist.fill(model, hf.config, bridge, torch_dist.text_weights(load_file(f"{out}/hf/model.safetensors")))
    optimizer = trained(config, model, kind, more, dtype)
    save_live(live(parts(model, optimizer), bridge, model.decoder.layers[0].layer_number - 1), out)
    how = {"chained_optim_avoid_prefix": not case.endswith("older")} | more.get("metadata", {})  # as Megatron-LM now says
    if kind != "plain":
        how["distrib_optim_sharding_type"] = kind
    weights = model.sharded_state_dict(metadata=how)
    args = argparse.Namespace(iteration=STEP, apply_wd_to_qk_layernorm="qk_decay" in more)
    torch.use_deterministic_algorithms(True)  # memory that nobody sets, as a bucket's padding, is NaN
    torch_dist.save({"args": args, "model": weights,
                     "optimizer": optimizer.sharded_state_dict(model.sharded_state_dict(metadata=how), metadata=how)},
                    out, content_metadata=how)
    torch.use_deterministic_algorithms(False)


if __name__ == "__main__":
    with OnCpu():
        torch_dist.run_all(run)
