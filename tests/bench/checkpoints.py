"""Checkpoints to measure with: what torch.distributed.checkpoint writes for FSDP over any number of
ranks, and what veRL does, written by one process. Items are made by torch.save, the metadata by torch's own classes."""

import io
import json
import os
import pickle
from pathlib import Path

import torch
import torch.distributed as dist
from torch.distributed.checkpoint.filesystem import _StorageInfo
from torch.distributed.checkpoint.metadata import (ChunkStorageMetadata, Metadata, MetadataIndex,
                                                   TensorProperties, TensorStorageMetadata)
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Shard
from torch.testing._internal.distributed.fake_pg import FakeStore

HEAD, VOCAB = 64, 32000


def llama(target_bytes, dtype=torch.bfloat16):
    """Config and tensors of a Llama of about that size: as many layers as it takes."""
    hidden = 2048 if target_bytes > 400e6 else 512
    inter = hidden * 11 // 4
    layer = {"self_attn.q_proj": (hidden, hidden), "self_attn.k_proj": (hidden // 4, hidden),
             "self_attn.v_proj": (hidden // 4, hidden), "self_attn.o_proj": (hidden, hidden),
             "mlp.gate_proj": (inter, hidden), "mlp.up_proj": (inter, hidden),
             "mlp.down_proj": (hidden, inter), "input_layernorm": (hidden,),
             "post_attention_layernorm": (hidden,)}
    layer_bytes = sum(torch.Size(s).numel() for s in layer.values()) * dtype.itemsize
    ends_bytes = 2 * VOCAB * hidden * dtype.itemsize
    n_layers = max(1, round((target_bytes - ends_bytes) / layer_bytes))
    shapes = {"model.embed_tokens.weight": (VOCAB, hidden)}
    for i in range(n_layers):
        shapes |= {f"model.layers.{i}.{name}.weight": shape for name, shape in layer.items()}
    shapes |= {"model.norm.weight": (hidden,), "lm_head.weight": (VOCAB, hidden)}
    config = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": hidden,
              "intermediate_size": inter, "num_hidden_layers": n_layers, "vocab_size": VOCAB,
              "num_attention_heads": hidden // HEAD, "num_key_value_heads": hidden // HEAD // 4,
              "head_dim": HEAD, "tie_word_embeddings": False, "torch_dtype": "bfloat16"}
    random = torch.Generator().manual_seed(0)
    noise = torch.randint(-30000, 30000, (1 << 24,), dtype=torch.int16, generator=random)
    noise = noise.view(torch.bfloat16).nan_to_num(0).to(dtype)
    tensors = {name: noise.repeat(-(-torch.Size(shape).numel() // len(noise)))
               [:torch.Size(shape).numel()].view(shape) for name, shape in shapes.items()}
    return config, tensors


def write(folder, tensors, ranks):
    """folder/.metadata and one file a rank; every tensor is cut along its rows."""
    folder = Path(folder)
    folder.mkdir(parents=True)
    described, stored, planner = {}, {}, {}
    chunks = {name: [] for name in tensors}
    for rank in range(ranks):
        with open(folder / f"__{rank}_0.distcp", "wb") as f:
            for name, whole in tensors.items():
                rows = -(-len(whole) // ranks)
                part = whole[rank * rows:(rank + 1) * rows]
                if not len(part):
                    continue
                offset = torch.Size((rank * rows, *(0,) * (whole.dim() - 1)))
                item = io.BytesIO()
                torch.save(part.clone(), item)
                chunks[name].append(ChunkStorageMetadata(offset, part.shape))
                stored[MetadataIndex(f"model.{name}", offset, rank)] = _StorageInfo(
                    f.name.rpartition("/")[2], f.tell(), item.tell())
                f.write(item.getbuffer())
    for name, whole in tensors.items():
        described[f"model.{name}"] = TensorStorageMetadata(
            TensorProperties(dtype=whole.dtype), whole.shape, chunks[name])
        planner[f"model.{name}"] = ("model", name)
    with open(folder / ".metadata", "wb") as f:
        pickle.dump(Metadata(described, planner, stored), f)


def write_run(folder, config, tensors, ranks):
    """What Accelerate leaves of a run: the model's directory, and a config beside it."""
    write(os.path.join(folder, "checkpoint-1", "pytorch_model_fsdp_0"), tensors, ranks)
    Path(folder, "checkpoint-1", "config.json").write_text(json.dumps(config))


def write_rank_files(folder, config, tensors, ranks):
    """A veRL actor with FSDP2: this process is one rank after the other."""
    folder = Path(folder)
    (folder / "huggingface").mkdir(parents=True)
    (folder / "huggingface/config.json").write_text(json.dumps(config))
    (folder / "fsdp_config.json").write_text(json.dumps({"FSDP_version": 2, "world_size": ranks}))
    for rank in range(ranks):
        dist.init_process_group("fake", rank=rank, world_size=ranks, store=FakeStore())
        mesh = init_device_mesh("cpu", (ranks,), mesh_dim_names=("fsdp",))
        state = {}
        for name, whole in tensors.items():
            rows = -(-len(whole) // ranks)
            state[name] = DTensor.from_local(whole[rank * rows:(rank + 1) * rows].clone(), mesh, [Shard(0)],
                                             run_check=False, shape=whole.shape, stride=whole.stride())
        torch.save(state, folder / f"model_world_size_{ranks}_rank_{rank}.pt")
        dist.destroy_process_group()
