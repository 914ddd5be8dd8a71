"""A Megatron-Core torch_dist directory of any size that takes no space: the metadata, the names, the shapes and the
chunks of megatron-core 0.16.1 (as torch_dist.py's cases have them), and for each tensor's chunk a hole. With an optimizer,
saved by name (fully_reshardable), three more for each."""

import json
import os
import pickle

import torch
from torch.distributed.checkpoint.filesystem import _StorageInfo
from torch.distributed.checkpoint.metadata import (ChunkStorageMetadata, Metadata, MetadataIndex,
                                                   TensorProperties, TensorStorageMetadata)

from sparse_dcp import Item, mark

NAME = "iter_0000002"
QWEN3_30B_A3B = {"model_type": "qwen3_moe", "hidden_size": 2048, "num_hidden_layers": 48, "num_attention_heads": 32,
                 "num_key_value_heads": 4, "head_dim": 128, "intermediate_size": 6144, "moe_intermediate_size": 768,
                 "num_experts": 128, "vocab_size": 151936, "tie_word_embeddings": False}
DEEPSEEK_V3_671B = {"model_type": "deepseek_v3", "hidden_size": 7168, "num_hidden_layers": 61,
                    "num_attention_heads": 128, "num_key_value_heads": 128, "intermediate_size": 18432,
                    "moe_intermediate_size": 2048, "n_routed_experts": 256, "n_shared_experts": 1,
                    "first_k_dense_replace": 3, "q_lora_rank": 1536, "kv_lora_rank": 512, "qk_nope_head_dim": 128,
                    "qk_rope_head_dim": 64, "v_head_dim": 128, "vocab_size": 129280, "tie_word_embeddings": False}

# As many tensors of experts as fit: 60 layers of 2,240 experts, each of which is three tensors of the Hub's.
EXPERTS_1T = DEEPSEEK_V3_671B | {"n_routed_experts": 2240, "moe_intermediate_size": 600, "hidden_size": 4096,
                                 "first_k_dense_replace": 1}

GPT_OSS_20B = {"model_type": "gpt_oss", "hidden_size": 2880, "num_hidden_layers": 24, "num_attention_heads": 64,
               "num_key_value_heads": 8, "head_dim": 64, "intermediate_size": 2880, "num_local_experts": 32,
               "vocab_size": 201088, "tie_word_embeddings": False}


def stacked(n, shape, chunk=None):
    """All layers in one tensor, each a chunk."""
    return (n, *shape), (1, *(chunk or shape))


def experts(n, hidden, ffn):
    """Of a layer: each expert's gate and up are a chunk each, its down is one."""
    return {"linear_fc1.weight": ((n, 2 * ffn, hidden), (1, ffn, hidden)),
            "linear_fc2.weight": ((n, hidden, ffn), (1, hidden, ffn))}


def experts_one_by_one(n, hidden, ffn):
    """As singleton_local_shards saves them: each expert has tensors of its own, gate and up too."""
    parts = {"linear_fc1.weight_w": (ffn, hidden), "linear_fc1.weight_v": (ffn, hidden), "linear_fc2.weight": (hidden, ffn)}
    return {f"{e}.{name}": (shape, shape) for e in range(n) for name, shape in parts.items()}


def whole_model(config, layers):
    """name -> (shape, a chunk's shape); `layers`: those of the decoder's layers."""
    hidden, rows = config["hidden_size"], -(-config["vocab_size"] // 128) * 128  # Megatron pads the vocabulary
    ends = {"embedding.word_embeddings.weight": (rows, hidden), "decoder.final_layernorm.weight": (hidden,),
            "output_layer.weight": (rows, hidden)}
    return {n: (s, s) for n, s in ends.items()} | layers


def qwen3_moe(c):
    n, hidden, head, groups = (c[k] for k in ("num_hidden_layers", "hidden_size", "head_dim", "num_key_value_heads"))
    query = c["num_attention_heads"] * head
    layer = {"self_attention.linear_qkv.layer_norm_weight": (hidden,), "self_attention.q_layernorm.weight": (head,),
             "self_attention.k_layernorm.weight": (head,), "self_attention.linear_proj.weight": (hidden, query),
             "self_attention.linear_qkv.weight": (query + 2 * groups * head, hidden),
             "pre_mlp_layernorm.weight": (hidden,), "mlp.router.weight": (c["num_experts"], hidden)}
    of_experts = experts(c["num_experts"], hidden, c["moe_intermediate_size"])
    return whole_model(c, {f"decoder.layers.{k}": stacked(n, s) for k, s in layer.items()}
                       | {f"decoder.layers.mlp.experts.experts.{k}": stacked(n, *s) for k, s in of_experts.items()})


def gpt_oss(c):
    n, hidden, head, groups = (c[k] for k in ("num_hidden_layers", "hidden_size", "head_dim", "num_key_value_heads"))
    heads, n_experts, ffn = c["num_attention_heads"], c["num_local_experts"], c["intermediate_size"]
    qkv = (heads + 2 * groups) * head
    layer = {"self_attention.linear_qkv.layer_norm_weight": (hidden,), "self_attention.linear_qkv.weight": (qkv, hidden),
             "self_attention.linear_qkv.bias": (qkv,), "self_attention.linear_proj.weight": (hidden, heads * head),
             "self_attention.linear_proj.bias": (hidden,), "self_attention.core_attention.softmax_offset": (heads,),
             "pre_mlp_layernorm.weight": (hidden,), "mlp.router.weight": (n_experts, hidden),
             "mlp.router.bias": (n_experts,)}
    of_experts = experts(n_experts, hidden, ffn) | {"linear_fc1.bias": ((n_experts, 2 * ffn), (1, ffn)),
                                                    "linear_fc2.bias": ((n_experts, hidden), (1, hidden))}
    return whole_model(c, {f"decoder.layers.{k}": stacked(n, s) for k, s in layer.items()}
                       | {f"decoder.layers.mlp.experts.experts.{k}": stacked(n, *s) for k, s in of_experts.items()})


def deepseek_v3(c, of_experts=experts):
    """By layer, as megatron-core saves where moe_layer_freq is a list."""
    hidden, heads, q_rank, kv_rank = (c[k] for k in ("hidden_size", "num_attention_heads", "q_lora_rank",
                                                     "kv_lora_rank"))
    nope, rope, value = c["qk_nope_head_dim"], c["qk_rope_head_dim"], c["v_head_dim"]
    ffn, n = c["moe_intermediate_size"], c["n_routed_experts"]
    attention = {"input_layernorm.weight": (hidden,), "self_attention.linear_q_down_proj.weight": (q_rank, hidden),
                 "self_attention.linear_q_up_proj.layer_norm_weight": (q_rank,),
                 "self_attention.linear_q_up_proj.weight": (heads * (nope + rope), q_rank),
                 "self_attention.linear_kv_down_proj.weight": (kv_rank + rope, hidden),
                 "self_attention.linear_kv_up_proj.layer_norm_weight": (kv_rank,),
                 "self_attention.linear_kv_up_proj.weight": (heads * (nope + value), kv_rank),
                 "self_attention.linear_proj.weight": (hidden, heads * value)}
    dense = {"mlp.linear_fc1.layer_norm_weight": (hidden,), "mlp.linear_fc1.weight": (2 * c["intermediate_size"], hidden),
             "mlp.linear_fc2.weight": (hidden, c["intermediate_size"])}
    sparse = {"pre_mlp_layernorm.weight": (hidden,), "mlp.router.weight": (n, hidden), "mlp.router.expert_bias": (n,),
              "mlp.shared_experts.linear_fc1.weight": (2 * ffn, hidden),
              "mlp.shared_experts.linear_fc2.weight": (hidden, ffn)}
    layers = {}
    for i in range(c["num_hidden_layers"]):
        is_sparse = i >= c["first_k_dense_replace"]
        for name, shape in (attention | (sparse if is_sparse else dense)).items():
            layers[f"decoder.layers.{i}.{name}"] = shape, shape
        for name, tensor in of_experts(n, hidden, ffn).items() if is_sparse else ():
            layers[f"decoder.layers.{i}.mlp.experts.experts.{name}"] = tensor
    return whole_model(c, layers)


def offsets(shape, chunk):
    if not shape:
        yield ()
        return
    for at in range(0, shape[0], chunk[0]):
        for rest in offsets(shape[1:], chunk[1:]):
            yield (at, *rest)


def with_optimizer(tensors):
    """(name, shape, a chunk's shape, dtype) of each weight, then of what the optimizer has of each parameter."""
    yield from ((n, *shapes, torch.bfloat16) for n, shapes in tensors.items())
    for name, shapes in tensors.items():
        if not name.endswith(".expert_bias"):  # a buffer
            yield from ((f"optimizer.state.{state}.{name}", *shapes, torch.float32)
                        for state in ("param", "exp_avg", "exp_avg_sq"))


def groups():
    values = {"max_lr": 1e-2, "min_lr": 1e-3, "lr": 5e-3, "lr_mult": 1.0, "betas": (0.9, 0.95), "eps": 1e-8, "step": 2.0}
    return [values | {"wd_mult": float(decay), "weight_decay": 0.1 * decay} for decay in (1, 0)]


def write(folder, config, ranks, dtype=torch.bfloat16, optimizer=False, one_by_one=False):
    """FOLDER/NAME and FOLDER/config.json. A chunk begins with 16 bytes that are not zero; the rest are zeros.
    Returns the number of items. one_by_one: the experts, of deepseek_v3."""
    tensors = {"qwen3_moe": qwen3_moe, "gpt_oss": gpt_oss, "deepseek_v3": deepseek_v3}[config["model_type"]](
        config, *([experts_one_by_one] if one_by_one else []))
    described_as = with_optimizer(tensors) if optimizer else ((n, *shapes, dtype) for n, shapes in tensors.items())
    shown = folder / NAME
    os.makedirs(shown)
    (folder / "config.json").write_text(json.dumps(config | {"dtype": "bfloat16", "transformers_version": "5.23.0"}))
    (shown / "metadata.json").write_text(json.dumps({"sharded_backend": "torch_dist", "sharded_backend_version": 1,
                                                     "common_backend": "torch", "common_backend_version": 1}))
    states = {"optimizer": {"optimizer": {"param_groups": groups()}, "param_state_sharding_type": "fully_reshardable"}}
    torch.save({"iteration": 2, "checkpoint_version": 3.0} | (states if optimizer else {}), shown / "common.pt")
    files = [os.open(shown / f"__{r}_0.distcp", os.O_RDWR | os.O_CREAT, 0o644) for r in range(ranks)]
    end, known, described, stored = [0] * ranks, {}, {}, {}
    for name, shape, chunk, of_item in described_as:
        item = known[chunk, of_item] = known.get((chunk, of_item)) or Item(chunk, of_item)
        chunks = []
        for offset in offsets(shape, chunk):
            rank = len(stored) % ranks
            item.put(files[rank], end[rank], mark(f"{name} {offset}", rank))
            chunks.append(ChunkStorageMetadata(torch.Size(offset), torch.Size(chunk)))
            stored[MetadataIndex(name, torch.Size(offset), 0)] = _StorageInfo(f"__{rank}_0.distcp", end[rank], item.size)
            end[rank] += item.size
        described[name] = TensorStorageMetadata(TensorProperties(dtype=of_item), torch.Size(shape), chunks)
    for fd in files:
        os.close(fd)
    (shown / ".metadata").write_bytes(pickle.dumps(Metadata(described, None, stored)))
    return len(stored)
