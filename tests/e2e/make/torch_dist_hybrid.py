"""Nemotron-H as Megatron-Core's torch_dist checkpoints: Mamba layers, attention, MLPs and experts, each a layer of its own.

    torchrun --nproc_per_node=2 torch_dist_hybrid.py OUT CASE...

OUT/CASE/hf, OUT/CASE/run/iter_0000002 and OUT/CASE/logits.safetensors are what torch_dist.py makes. The model is
megatron-core's MambaModel with its own modules. mamba_ssm, whose kernels take a GPU, is replaced by what they compute, step by
step. mbridge has no such family: `local` is what a rank's parameters are by megatron-core's modules (ssm/mamba_mixer.py).
"""

import contextlib
import os
import re
import sys
import types

import torch
import torch.distributed as dist
from torch.nn import functional

import torch_dist
from torch_dist import STEP

SIZES = {"vocab_size": 40, "hidden_size": 16, "intermediate_size": 24, "num_attention_heads": 4, "num_key_value_heads": 2,
         "head_dim": 6, "mamba_num_heads": 4, "mamba_head_dim": 10, "n_groups": 2, "ssm_state_size": 3, "conv_kernel": 4,
         "n_routed_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 12,
         "moe_shared_expert_intermediate_size": 16, "use_mamba_kernels": False}

# case -> pattern of layers, changes to SIZES, Megatron's sizes of parallelism, rows of the padded vocabulary
CASES = {
    "nemotron_h-dp2": ("M-M*ME", {}, {}, None),
    "nemotron_h-tp2-bf16": ("ME*-M", {"vocab_size": 37}, {"tp": 2}, 48),
    "nemotron_h-pp2": ("M-*M", {"mamba_num_heads": 6}, {"pp": 2}, None),
    "nemotron_h-ep2": ("ME*E", {"moe_latent_size": 8}, {"ep": 2}, None),
    "nemotron_h-etp2": ("EM", {}, {"tp": 1, "etp": 2}, None),
    "nemotron_h-tp4": ("ME*M", {"n_groups": 4, "num_key_value_heads": 4}, {"tp": 4}, None),
    "nemotron_h-tp2-pp2": ("M-*EM-", {}, {"tp": 2, "pp": 2}, None),
    "nemotron_h-tp2-ep2-etp1": ("ME*M", {"moe_latent_size": 8}, {"tp": 2, "ep": 2, "etp": 1}, None),
    "nemotron_h-pp2-ep2": ("EMM*E-", {}, {"pp": 2, "ep": 2}, None),
}


class GatedNorm(torch.nn.Module):
    """mamba_ssm's RMSNorm of what a gate went through, of each group of heads."""

    def __init__(self, hidden_size, eps, group_size, norm_before_gate, device, dtype):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(hidden_size, dtype=dtype))
        self.eps, self.group_size = eps, group_size

    def forward(self, x, z):
        x = (x * functional.silu(z)).unflatten(-1, (-1, self.group_size))
        return (x * torch.rsqrt(x.square().mean(-1, keepdim=True) + self.eps)).flatten(-2) * self.weight


def scan(x, dt, a, b, c, chunk_size, D, dt_bias, **others):
    """The recurrence that mamba_ssm's kernels compute in chunks."""
    dt = functional.softplus(dt + dt_bias)
    b, c = (t.repeat_interleave(x.shape[2] // t.shape[2], dim=2) for t in (b, c))
    state, out = 0, []
    for i in range(x.shape[1]):
        state = state * torch.exp(dt[:, i] * a)[..., None, None] + (dt[:, i, :, None] * x[:, i])[..., None] * b[:, i, :, None]
        out.append((state * c[:, i, :, None]).sum(-1) + D[:, None] * x[:, i])
    return torch.stack(out, dim=1)


def replace_kernels():
    """Before megatron-core looks for mamba_ssm, and for what inference takes of Triton."""
    inference = "megatron.core.inference.contexts.attention_context.triton.tensor_ops"
    norms, kernels, unused = (types.ModuleType(name) for name in (
        "mamba_ssm.ops.triton.layernorm_gated", "mamba_ssm.ops.triton.ssd_combined", inference))
    norms.RMSNorm = GatedNorm
    kernels.mamba_chunk_scan_combined, kernels.mamba_split_conv1d_scan_combined = scan, None
    unused.tensor_get_slice_after = unused.tensor_masked_update = unused.tensor_merge = None
    for module in (norms, kernels, unused):
        sys.modules[module.__name__] = module


class Latent(torch.nn.Linear):
    """Transformer Engine's linear module that every rank has whole, as far as experts' widths take it."""

    def __init__(self, inputs, outputs, **others):
        super().__init__(inputs, outputs, bias=False)

    def forward(self, x):
        return super().forward(x), None


def stack_spec(experts):
    from megatron.core.fusions.fused_bias_dropout import get_bias_dropout_add
    from megatron.core.models.gpt.moe_module_specs import get_moe_module_spec
    from megatron.core.ssm import mamba_block, mamba_layer, mamba_mixer
    from megatron.core.ssm.mlp_layer import MLPLayer
    from megatron.core.tensor_parallel import ColumnParallelLinear, RowParallelLinear, get_cuda_rng_tracker
    from megatron.core.transformer.attention import SelfAttention, SelfAttentionSubmodules
    from megatron.core.transformer.dot_product_attention import DotProductAttention
    from megatron.core.transformer.enums import AttnMaskType
    from megatron.core.transformer.mlp import MLP, MLPSubmodules
    from megatron.core.transformer.moe import moe_layer
    from megatron.core.transformer.spec_utils import ModuleSpec
    from megatron.core.transformer.torch_norm import WrappedTorchNorm
    from megatron.core.transformer.transformer_layer import TransformerLayer, TransformerLayerSubmodules

    get_cuda_rng_tracker().fork = lambda *args: contextlib.nullcontext()  # it would draw on a GPU; `fill` puts in the weights
    mamba_block.TENorm = WrappedTorchNorm
    moe_layer.HAVE_TE, moe_layer.TELinear = True, Latent
    mixer = mamba_mixer.MambaMixerSubmodules(in_proj=ColumnParallelLinear, out_proj=RowParallelLinear)
    attention = SelfAttentionSubmodules(linear_qkv=ColumnParallelLinear, core_attention=DotProductAttention,
                                        linear_proj=RowParallelLinear)
    mlp = MLPSubmodules(linear_fc1=ColumnParallelLinear, linear_fc2=RowParallelLinear)
    return ModuleSpec(module=mamba_block.MambaStack, submodules=mamba_block.MambaStackSubmodules(
        mamba_layer=ModuleSpec(module=mamba_layer.MambaLayer, submodules=mamba_layer.MambaLayerSubmodules(
            norm=WrappedTorchNorm, mamba_bda=get_bias_dropout_add,
            mixer=ModuleSpec(module=mamba_mixer.MambaMixer, submodules=mixer))),
        attention_layer=ModuleSpec(module=TransformerLayer, submodules=TransformerLayerSubmodules(
            input_layernorm=WrappedTorchNorm, self_attn_bda=get_bias_dropout_add,
            self_attention=ModuleSpec(module=SelfAttention, submodules=attention,
                                      params={"attn_mask_type": AttnMaskType.causal}))),
        mlp_layer=ModuleSpec(module=MLPLayer, submodules=TransformerLayerSubmodules(
            pre_mlp_layernorm=WrappedTorchNorm, mlp_bda=get_bias_dropout_add, mlp=ModuleSpec(module=MLP, submodules=mlp))),
        moe_layer=ModuleSpec(module=TransformerLayer, submodules=TransformerLayerSubmodules(
            pre_mlp_layernorm=WrappedTorchNorm, mlp_bda=get_bias_dropout_add,
            mlp=get_moe_module_spec(use_te=False, num_experts=experts, moe_grouped_gemm=False)))))


def build(hf, sizes, padded, dtype):
    from megatron.core import parallel_state
    from megatron.core.activations import squared_relu
    from megatron.core.models.mamba import MambaModel
    from megatron.core.transformer import TransformerConfig

    config = TransformerConfig(
        num_layers=hf.num_hidden_layers, hidden_size=hf.hidden_size, ffn_hidden_size=hf.intermediate_size,
        num_attention_heads=hf.num_attention_heads, num_query_groups=hf.num_key_value_heads, kv_channels=hf.head_dim,
        mamba_num_heads=hf.mamba_num_heads, mamba_head_dim=hf.mamba_head_dim, mamba_num_groups=hf.n_groups,
        mamba_state_dim=hf.ssm_state_size, use_mamba_mem_eff_path=False, is_hybrid_model=True,
        num_moe_experts=hf.n_routed_experts, moe_router_topk=hf.num_experts_per_tok, moe_ffn_hidden_size=hf.moe_intermediate_size,
        moe_shared_expert_intermediate_size=hf.moe_shared_expert_intermediate_size, moe_latent_size=hf.moe_latent_size,
        moe_router_load_balancing_type="none", moe_router_score_function="sigmoid", moe_router_enable_expert_bias=True,
        moe_token_dispatcher_type="allgather", activation_func=squared_relu, normalization="RMSNorm",
        layernorm_epsilon=hf.layer_norm_epsilon, add_bias_linear=False, hidden_dropout=0.0, attention_dropout=0.0,
        tensor_model_parallel_size=sizes.get("tp", 1), pipeline_model_parallel_size=sizes.get("pp", 1),
        expert_model_parallel_size=sizes.get("ep", 1), expert_tensor_parallel_size=sizes.get("etp"),
        params_dtype=dtype, pipeline_dtype=dtype, use_cpu_initialization=True, perform_initialization=False,
        gradient_accumulation_fusion=False, bias_activation_fusion=False, masked_softmax_fusion=False)
    model = MambaModel(
        config, stack_spec(hf.n_routed_experts), vocab_size=padded or hf.vocab_size, max_sequence_length=64,
        hybrid_override_pattern=hf.hybrid_override_pattern, pre_process=parallel_state.is_pipeline_first_stage(),
        post_process=parallel_state.is_pipeline_last_stage())
    return model.to(dtype)


# Within a layer: Megatron's name -> the published one, and the dimension that tensor parallelism cuts (None: none).
COPIED = {"mixer.A_log": ("mixer.A_log", 0), "mixer.D": ("mixer.D", 0), "mixer.dt_bias": ("mixer.dt_bias", 0),
          "mixer.norm.weight": ("mixer.norm.weight", 0), "mixer.out_proj.weight": ("mixer.out_proj.weight", 1),
          "self_attention.linear_proj.weight": ("mixer.o_proj.weight", 1),
          "mlp.linear_fc1.weight": ("mixer.up_proj.weight", 0), "mlp.linear_fc2.weight": ("mixer.down_proj.weight", 1),
          "mlp.router.weight": ("mixer.gate.weight", None),
          "mlp.router.expert_bias": ("mixer.gate.e_score_correction_bias", None),
          "mlp.fc1_latent_proj.weight": ("mixer.fc1_latent_proj.weight", None),
          "mlp.fc2_latent_proj.weight": ("mixer.fc2_latent_proj.weight", None),
          "mlp.shared_experts.linear_fc1.weight": ("mixer.shared_experts.up_proj.weight", 0),
          "mlp.shared_experts.linear_fc2.weight": ("mixer.shared_experts.down_proj.weight", 1)}
NORMS = ("norm.weight", "input_layernorm.weight", "pre_mlp_layernorm.weight")
ALONE = {"embedding.word_embeddings.weight": ("backbone.embeddings.weight", 0),
         "decoder.final_norm.weight": ("backbone.norm_f.weight", None), "output_layer.weight": ("lm_head.weight", 0)}


def part(whole, dim, rank, ranks):
    return whole if dim is None else whole.chunk(ranks, dim=dim)[rank]


def parts_of_each(whole, rows, rank, ranks):
    """Of blocks of so many rows, each of which is cut."""
    return torch.cat([block.chunk(ranks)[rank] for block in whole.split(rows)])


def local(hf, name, weights, rank, ranks):
    """What a rank's parameter of this name (that of the whole model) holds; `rank`: of this kind's tensor parallelism."""
    if name in ALONE:
        return part(weights[ALONE[name][0]], ALONE[name][1], rank, ranks)
    layer, within = re.fullmatch(r"decoder\.layers\.(\d+)\.(.*)", name).groups()
    to = f"backbone.layers.{layer}."
    inner, states = hf.mamba_num_heads * hf.mamba_head_dim, hf.n_groups * hf.ssm_state_size
    if within in NORMS:
        return weights[to + "norm.weight"]
    if within in COPIED:
        return part(weights[to + COPIED[within][0]], COPIED[within][1], rank, ranks)
    if within == "mixer.in_proj.weight":
        rows = [inner, inner, states, states, hf.mamba_num_heads]
        return parts_of_each(weights[to + within], rows, rank, ranks)
    if within.startswith("mixer.conv1d."):
        return parts_of_each(weights[to + within], [inner, states, states], rank, ranks)
    if within == "self_attention.linear_qkv.weight":
        q, k, v = (weights[f"{to}mixer.{p}_proj.weight"].unflatten(0, (hf.num_key_value_heads, -1)) for p in "qkv")
        return torch.cat([q, k, v], dim=1).flatten(0, 1).chunk(ranks)[rank]
    expert, fc = re.fullmatch(r"mlp\.experts\.local_experts\.(\d+)\.linear_fc(\d)\.weight", within).groups()
    return part(weights[f"{to}mixer.experts.{expert}.{'up' if fc == '1' else 'down'}_proj.weight"], int(fc) - 1, rank, ranks)


def fill(model, hf, weights, padded):
    from megatron.core import parallel_state as ps

    first_expert = ps.get_expert_model_parallel_rank() * (hf.n_routed_experts // ps.get_expert_model_parallel_world_size())
    if padded:
        for name in ("backbone.embeddings.weight", "lm_head.weight"):
            weights[name] = functional.pad(weights[name], (0, 0, 0, padded - hf.vocab_size), value=0.5)
    for name, param in model.state_dict().items():
        if "_extra_state" in name or name.endswith("local_tokens_per_expert"):
            continue
        name = re.sub(r"(?<=decoder\.layers\.)\d+", lambda m: str(model.decoder.layers[int(m[0])].layer_number - 1), name)
        name = re.sub(r"(?<=local_experts\.)\d+", lambda m: str(int(m[0]) + first_expert), name)
        kind = "expert_tensor" if ".local_experts." in name else "tensor_model"
        ranks = (getattr(ps, f"get_{kind}_parallel_{what}")() for what in ("rank", "world_size"))
        param.copy_(local(hf, name, weights, *ranks))


def published_model(pattern, changes, dtype):
    from transformers import AutoConfig, AutoModelForCausalLM

    torch.manual_seed(11)
    model = AutoModelForCausalLM.from_config(
        AutoConfig.for_model("nemotron_h", **SIZES | changes, hybrid_override_pattern=pattern))
    with torch.no_grad():
        for param in model.parameters():  # norms and biases too
            param.copy_(torch.randn(param.shape) * 0.2 + (0.9 if param.dim() == 1 else 0))
    model.to(dtype)
    for module in model.modules():
        if hasattr(module, "e_score_correction_bias"):  # megatron-core keeps it in fp32
            module.e_score_correction_bias = torch.randn(module.e_score_correction_bias.shape)
    return model


def run(case, out):
    replace_kernels()
    import megatron.core  # noqa: F401
    from megatron.core import parallel_state
    from safetensors.torch import load_file, save_file

    pattern, changes, sizes, padded = CASES[case]
    dtype = torch.bfloat16 if case.endswith("bf16") else torch.float32
    published = published_model(pattern, changes, dtype)
    if dist.get_rank() == 0:
        published.save_pretrained(f"{out}/hf")
        os.makedirs(f"{out}/run/iter_{STEP:07}")
    dist.barrier()
    parallel_state.initialize_model_parallel(
        sizes.get("tp", 1), sizes.get("pp", 1), expert_model_parallel_size=sizes.get("ep", 1),
        expert_tensor_parallel_size=sizes.get("etp"))
    model = build(published.config, sizes, padded, dtype)
    fill(model, published.config, load_file(f"{out}/hf/model.safetensors"), padded)
    if not sizes and dist.get_rank() == 0:
        save_file({"logits": torch_dist.logits(model, 9)}, f"{out}/logits.safetensors")
    group = parallel_state.get_data_parallel_group(with_context_parallel=True)
    torch_dist.save({"model": model.sharded_state_dict(metadata={"dp_cp_group": group})}, out)


if __name__ == "__main__":
    torch_dist.run_all(run)
