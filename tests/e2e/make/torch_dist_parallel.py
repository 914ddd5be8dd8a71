"""Megatron-Core's torch_dist checkpoints with an optimizer, of context parallelism, of interleaved pipelines, in fp16,
with a layer for multi-token prediction and with a vision model, several cases in one launch:

    torchrun --nproc_per_node=2 torch_dist_parallel.py OUT CASE...

Each makes what torch_dist_optimizer.py makes of a case. A rank of an interleaved pipeline has several chunks of the model.
A vision model is transformers' own module, as in torch_dist.py, and keeps its names in live/.
"""

import argparse
import os
import re

import torch
import torch.distributed as dist

import torch_dist
import torch_dist_optimizer
from torch_dist import GLM_MTP, MOE, MROPE, QWEN2_5_VISION, QWEN3_VISION, STEP, TOWER
from torch_dist_optimizer import ALIGNED, SEVERAL, OnCpu

VPP = {"pp": 2, "vpp": 2}
LAYERS = {"num_hidden_layers": 4}
MTP_MODEL = GLM_MTP | {"num_hidden_layers": 2}
MTP = {"moe": [0, 1], "qkv_bias": True, "qk_norm": True, "router_bias": True, "mtp": 1}
# Else the bucket in front of the embedding is padded, and 0.16.1 saves other values of the embedding's states than it has.
NO_PADDING = {"qkv_bias": False}
VISION = tuple(f"{name}." for name in set(TOWER.values()))
CASES = {
    "llama-cp2-buckets-bf16": ("llama", {"tie_word_embeddings": True} | ALIGNED, {"cp": 2}, SEVERAL, "dp_reshardable"),
    "qwen3_moe-cp2-ep2-buckets": ("qwen3_moe", MOE, {"cp": 2, "ep": 2}, {"moe": True, "qk_norm": True},
                                  "dp_reshardable"),
    "llama-cp2-bf16": ("llama", {}, {"cp": 2}, {}, "fully_reshardable"),
    "llama-pp2-vpp2-buckets-bf16": ("llama", LAYERS | ALIGNED, VPP, SEVERAL, "dp_reshardable"),
    "qwen3_moe-pp2-vpp2-buckets": ("qwen3_moe", MOE | LAYERS | {"mlp_only_layers": [0]}, VPP,
                                   {"moe": [0, 1, 1, 1], "qk_norm": True}, "dp_reshardable"),
    "llama-pp2-vpp2": ("llama", LAYERS, VPP, {}, "fully_reshardable"),
    "llama-dp2-buckets-fp16": ("llama", {}, {}, SEVERAL, "dp_reshardable"),
    "llama-tp2-fp16": ("llama", {"vocab_size": 37}, {"tp": 2}, {"padded": 48}, "fully_reshardable"),
    "glm4_moe-mtp-dp2-bf16": ("glm4_moe", MTP_MODEL, {}, MTP, "fully_reshardable"),
    "glm4_moe-mtp-tp2": ("glm4_moe", MTP_MODEL, {"tp": 2}, MTP, "fully_reshardable"),
    "glm4_moe-mtp-pp2": ("glm4_moe", MTP_MODEL | {"attention_bias": False}, {"pp": 2}, MTP | NO_PADDING,
                         "fully_reshardable"),
    "glm4_moe-mtp-pp2-moved": ("glm4_moe", MTP_MODEL, {"pp": 2}, MTP, "fully_reshardable"),
    "glm4_moe-mtp-ep2-bf16": ("glm4_moe", MTP_MODEL, {"ep": 2}, MTP, "fully_reshardable"),
    "qwen2_5_vl-tp2": ("qwen2_5_vl", MROPE | {"head_dim": 4}, {"tp": 2}, {"qkv_bias": True, "vision": QWEN2_5_VISION},
                       "fully_reshardable"),
    "qwen3_vl_moe-dp2-bf16": ("qwen3_vl_moe", MROPE | MOE, {}, {"moe": True, "qk_norm": True, "vision": QWEN3_VISION},
                              "fully_reshardable"),
    "qwen2_5_vl-buckets-bf16": ("qwen2_5_vl", MROPE | {"head_dim": 4}, {}, {"qkv_bias": True, "vision": QWEN2_5_VISION},
                                "dp_reshardable"),
    "glm4_moe-mtp-buckets-bf16": ("glm4_moe", MTP_MODEL, {}, MTP, "dp_reshardable"),
}
DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}
torch_dist_optimizer.CUDA_TYPES[torch.float16] = "torch.cuda.HalfTensor"


def dtype_of(case):
    return DTYPES.get(case.rpartition("-")[2], torch.float32)


def with_vision(model, published, more):
    """The first stage has the vision model of `published`, which is transformers' own."""
    if "vision" not in more:
        return model
    return torch_dist.with_tower(model, published.model.visual, TOWER[published.config.model_type])


def trained(config, chunks, more, dtype):
    """Megatron's optimizer after its steps. As Megatron-LM has it, chunks behind the first have one bucket each."""
    from megatron.core.distributed import DistributedDataParallel
    from megatron.core.optimizer import get_megatron_optimizer

    wrapped = [DistributedDataParallel(config, torch_dist_optimizer.ddp_config(True, more), chunk, disable_bucketing=i > 0)
               for i, chunk in enumerate(chunks)]
    half = {"fp16": True, "initial_loss_scale": 1024.0} if dtype == torch.float16 else {}
    optimizer = get_megatron_optimizer(torch_dist_optimizer.optimizer_config(True, dtype, **half), wrapped)
    schedule = torch_dist_optimizer.schedule_of(optimizer)
    for step in range(STEP):
        for i, chunk in enumerate(chunks):
            torch_dist_optimizer.set_gradients(chunk, step + 10 * i)
            for param in chunk.parameters():
                param.main_grad.mul_(optimizer.get_loss_scale())
        assert optimizer.step()[0]
        schedule.step(1)
    return optimizer


def bridge_of(text, config, dtype, more):
    bridge = torch_dist.bridge_of(text, config, dtype, more)
    names, published = bridge._weight_name_mapping_mcore_to_hf, bridge._weight_to_hf_format
    bridge._weight_name_mapping_mcore_to_hf = lambda name: [name] if name.startswith(VISION) else names(name)
    bridge._weight_to_hf_format = lambda name, tensor: (
        ([name], [tensor]) if name.startswith(VISION) else published(name, tensor))
    return bridge


def whole_name(chunk, name):
    """The parameter's name in a language model that has all layers."""
    first = getattr(chunk, "language_model", chunk).decoder.layers[0].layer_number - 1
    return re.sub(r"(?<=^decoder\.layers\.)\d+", lambda m: str(int(m[0]) + first), name.removeprefix("language_model."))


def parts(chunks, optimizer):
    """As of one model that has all layers."""
    for chunk in chunks:
        for name, *part in torch_dist_optimizer.parts(chunk, optimizer):
            yield whole_name(chunk, name), *part


def run(case, out):
    import mbridge  # noqa: F401
    from megatron.core import parallel_state
    from safetensors.torch import load_file

    model_type, changes, sizes, more, kind = CASES[case]
    dtype = dtype_of(case)
    hf = torch_dist.hf_model(model_type, changes, more.get("vision"), more.get("mtp", 0)).to(dtype)
    if dist.get_rank() == 0:
        torch_dist.save_published(hf, more.get("mtp"), f"{out}/hf")
        os.makedirs(f"{out}/run/iter_{STEP:07}")
    dist.barrier()
    parallel_state.initialize_model_parallel(
        sizes.get("tp", 1), sizes.get("pp", 1), sizes.get("vpp"), expert_model_parallel_size=sizes.get("ep", 1),
        context_parallel_size=sizes.get("cp", 1))
    text = hf.config.get_text_config()
    text.tie_word_embeddings = hf.config.tie_word_embeddings
    weights, chunks = torch_dist.text_weights(load_file(f"{out}/hf/model.safetensors")), []
    for stage in range(sizes["vpp"]) if "vpp" in sizes else [None]:
        config, chunk = torch_dist.build(text, sizes, more, dtype, stage)
        bridge = bridge_of(text, config, dtype, more)
        torch_dist.fill(chunk, text, bridge, weights)
        chunks.append(with_vision(chunk, hf, more))
    optimizer = trained(config, chunks, more, dtype)
    torch_dist_optimizer.save_live(torch_dist_optimizer.live(parts(chunks, optimizer), bridge, 0), out)
    how = {"chained_optim_avoid_prefix": True, "distrib_optim_sharding_type": kind,
           "dp_cp_group": parallel_state.get_data_parallel_group(with_context_parallel=True)}

    def state():
        named = [("model" if "vpp" not in sizes else f"model{i}", chunk) for i, chunk in enumerate(chunks)]
        return {name: chunk.sharded_state_dict(metadata=how) for name, chunk in named}

    torch.use_deterministic_algorithms(True)  # memory that nobody sets, as a bucket's padding, is NaN
    torch_dist.save({"args": argparse.Namespace(iteration=STEP, apply_wd_to_qk_layernorm=False), **state(),
                     "optimizer": optimizer.sharded_state_dict(state(), metadata=how)}, out,
                    content_metadata={k: v for k, v in how.items() if k != "dp_cp_group"})
    torch.use_deterministic_algorithms(False)


if __name__ == "__main__":
    with OnCpu():
        torch_dist.run_all(run)
