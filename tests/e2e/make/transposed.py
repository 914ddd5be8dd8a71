"""A mixture of experts whose published files have rows and columns of the experts in the other order than memory
(qwen3_vl_moe), trained by several frameworks, in one launch:

    torchrun --nproc_per_node=W transposed.py OUT CASE...

OUT/base is the model as it is on the Hub: transposed. Each CASE loads it from there, trains it and makes OUT/CASE/run,
which is what a user has, and OUT/CASE/live.safetensors, the live tensors. CASE is f2 (torch's own checkpoint of
FSDP2), z1 or z3 (a DeepSpeed engine in bf16, with OUT/CASE/states.safetensors), verl-f2 (ranks.py) or lightning-fsdp
(lightning_run.py).
"""

import os
import sys

import cpu_deepspeed
import deepspeed
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dist_cp
from safetensors.torch import load_file, save_file
from torch.distributed.fsdp import fully_shard
from transformers import Qwen3VLMoeConfig, Qwen3VLMoeForConditionalGeneration

import deepspeed_engine
import lightning_net
import lightning_run
import models
import oracle
import ranks
from leaving import leave

OUT, CASES = sys.argv[1], sys.argv[2:]
BASE = f"{OUT}/base"


def write_base():
    torch.manual_seed(0)
    text = {"vocab_size": models.VOCAB, "hidden_size": 24, "intermediate_size": 32, "moe_intermediate_size": 10,
            "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 6, "num_experts": 5,
            "num_experts_per_tok": 2, "decoder_sparse_step": 1, "max_position_embeddings": 64, "pad_token_id": 0,
            "rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [1, 1, 1]}}
    vision = {"depth": 1, "hidden_size": 8, "num_heads": 2, "patch_size": 2, "spatial_merge_size": 2,
              "temporal_patch_size": 2, "intermediate_size": 12, "out_hidden_size": 24, "num_position_embeddings": 4,
              "deepstack_visual_indexes": [0]}
    config = Qwen3VLMoeConfig(text_config=text, vision_config=vision, tie_word_embeddings=False)
    Qwen3VLMoeForConditionalGeneration(config).save_pretrained(BASE)
    saved = load_file(f"{BASE}/model.safetensors")
    save_file({n: t.transpose(1, 2).contiguous() if ".experts." in n else t for n, t in saved.items()},
              f"{BASE}/model.safetensors", metadata={"format": "pt"})


def model_of(dtype=torch.float32):
    return Qwen3VLMoeForConditionalGeneration.from_pretrained(BASE, dtype=dtype, experts_implementation="eager")


def fsdp2(case, out):
    model = model_of()
    for layer in model.model.language_model.layers:
        fully_shard(layer)
    fully_shard(model)
    models.train(ranks.logits(model), torch.optim.AdamW(model.parameters(), lr=1e-2))
    dist_cp.save({"model": model.state_dict()}, checkpoint_id=f"{out}/run/ckpt")
    live = oracle.full_tensors(model)
    if dist.get_rank() == 0:
        oracle.write(live, f"{out}/live.safetensors")


def zero(case, out):
    model = model_of(torch.bfloat16)
    engine = deepspeed.initialize(model=model, optimizer=torch.optim.AdamW(model.parameters(), lr=1e-2),
                                  config=deepspeed_engine.config(f"{case}-bf16", False))[0]
    for step in range(2):
        ids = torch.arange(9)[None] * (step + 2)  # stage 3 waits for ever if ranks use different experts
        engine.backward(engine(input_ids=ids, labels=ids).loss)
        engine.step()
    engine.save_checkpoint(f"{out}/run")
    deepspeed_engine.write(engine, out)


def verl(case, out):
    ranks.build = lambda fsdp, kind, dtype: model_of(dtype)
    ranks.layers_of = lambda model: list(model.model.language_model.layers)
    ranks.run(case, out)
    if dist.get_rank() == 0:
        os.rename(f"{out}/live/model.safetensors", f"{out}/live.safetensors")


class Module(lightning_net.Published):
    def __init__(self):
        super().__init__()
        self.model = model_of()


def lightning(case, out):
    lightning_run.on_cpu()
    lightning_run.module_of = lambda name, kind: Module()
    keep = lightning_run.checkpoints(f"{out}/run", save_top_k=-1)
    lightning_run.write(lightning_run.fit(case.removeprefix("lightning-"), 2, [keep]), f"{out}/live.safetensors")


if __name__ == "__main__":
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    if dist.get_rank() == 0:
        write_base()
    dist.barrier()
    for one in CASES:
        {"f": fsdp2, "z": zero, "v": verl, "l": lightning}[one[0]](one, f"{OUT}/{one}")
        dist.barrier()
    leave()
