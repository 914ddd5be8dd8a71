#!/usr/bin/env python3
"""Writes the directories beside it: small checkpoints of kinds that tests/golden lacks, for the targets serve_*. Made
with torch 2.13, safetensors 0.8, transformers 5.23, deepspeed 0.19, peft 0.21 and megatron-core 0.16 and 0.13."""
import collections
import json
import os
import pathlib
import random
import shutil
import subprocess
import sys
import tempfile

import torch
import torch.distributed.checkpoint as dcp
from safetensors.torch import save_file

here = pathlib.Path(__file__).resolve().parent
golden = here.parents[1] / "golden"
torch.manual_seed(0)


def text(path, content):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content if isinstance(content, str) else json.dumps(content))


def saved(path, value):
    path.parent.mkdir(parents=True, exist_ok=True)
    torch.save(value, path)


def tensors(path, value):
    path.parent.mkdir(parents=True, exist_ok=True)
    save_file(value, path, metadata={"format": "pt"})


CONFIG = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 4, "vocab_size": 6,
          "num_hidden_layers": 1, "tie_word_embeddings": True, "torch_dtype": "bfloat16"}
STATE = {"global_step": 2, "epoch": 0.5, "train_batch_size": 4, "max_steps": 10, "logging_steps": 1, "save_steps": 2,
         "num_train_epochs": 3, "log_history": [{"loss": 1.5, "step": 1}], "is_world_process_zero": True}
weights = {"model.embed_tokens.weight": torch.randn(6, 4, dtype=torch.bfloat16),
           "model.layers.0.mlp.up_proj.weight": torch.randn(8, 4, dtype=torch.bfloat16),
           "model.norm.weight": torch.ones(4, dtype=torch.bfloat16)}
model = torch.nn.Linear(3, 2)
optimizer = torch.optim.AdamW([{"params": [model.weight]}, {"params": [model.bias], "weight_decay": 0.0}])
model(torch.ones(1, 3)).sum().backward()
optimizer.step()
scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, [lambda s: 1.0, lambda s: 1.0]).state_dict()
rng = {"python": (3, (1, 2), None), "cpu": torch.zeros(8, dtype=torch.uint8), "cuda": []}

# A Trainer's, and a model's directory in each of its forms.
step = here / "hf/checkpoint-2"
tensors(step / "model.safetensors", weights)
text(step / "config.json", CONFIG)
text(step / "tokenizer.json", "{}")
text(step / "trainer_state.json", STATE)
saved(step / "optimizer.pt", optimizer.state_dict())
saved(step / "scheduler.pt", scheduler)
saved(step / "rng_state.pth", rng)
names = sorted(weights)
for i in (1, 2):
    tensors(here / f"hf/split/model-0000{i}-of-00002.safetensors", {n: weights[n] for n in names[i - 1::2]})
text(here / "hf/split/model.safetensors.index.json", {"metadata": {"total_size": 1}, "weight_map": {
    n: f"model-0000{1 + i % 2}-of-00002.safetensors" for i, n in enumerate(names)}})
text(here / "hf/split/config.json", CONFIG)
saved(here / "hf/bin/pytorch_model.bin", weights)
saved(here / "hf/full/pytorch_model_fsdp.bin", collections.OrderedDict(weights))
for i in (1, 2):
    tensors(here / f"hf/writer/sharded/shard-0000{i}-model-0000{i}-of-00002.safetensors",
            {n: weights[n] for n in names[i - 1::2]})
adapter = {f"base_model.model.model.layers.0.self_attn.q_proj.lora_{x}.weight": torch.randn(2, 4) for x in "AB"}
tensors(here / "hf/adapter/adapter_model.safetensors", adapter)
text(here / "hf/adapter/adapter_config.json", {"peft_type": "LORA", "r": 2, "base_model_name_or_path": "x"})
for rank in (0, 1):
    saved(here / f"hf/ranks/pytorch_model_fsdp_rank{rank}.bin", {"a.weight": torch.randn(2, 3)})

# Files that are a checkpoint.
saved(here / "files/lightning.ckpt", {
    "state_dict": {f"model.{n}": w for n, w in weights.items()}, "optimizer_states": [optimizer.state_dict()], "epoch": 1,
    "global_step": 7, "pytorch-lightning_version": "2.6.0", "lr_schedulers": [scheduler], "callbacks": {},
    "loops": {"fit_loop": {"state_dict": {}}}, "hyper_parameters": {"lr": 0.1}})
saved(here / "files/plain.pt", weights)
saved(here / "files/below.pth", {"model": {"state_dict": weights}, "epoch": 3})
tensors(here / "files/weights.safetensors", weights)

# veRL's run of two ranks, with trackers of both trainers.
for kind in ("model", "optim"):
    for rank in (0, 1):
        name = f"{kind}_world_size_2_rank_{rank}.pt"
        (here / "verl/global_step_1/actor").mkdir(parents=True, exist_ok=True)
        shutil.copy(golden / "ranks/fsdp2" / name, here / "verl/global_step_1/actor" / name)
for rank in (0, 1):
    saved(here / f"verl/global_step_1/actor/extra_state_world_size_2_rank_{rank}.pt",
          {"lr_scheduler": scheduler, "rng": {"cpu": torch.zeros(8, dtype=torch.uint8), "random": (3, (1, 2), None)}})
text(here / "verl/global_step_1/actor/huggingface/config.json", CONFIG)
text(here / "verl/latest_checkpointed_iteration.txt", "1")
text(here / "verl/checkpoint_tracker.json", {"last_global_step": 1, "last_actor_path": "global_step_1"})

# A Trainer's with DeepSpeed stage 3, its weights gathered.
step = here / "zero_trainer/checkpoint-2"
shutil.copytree(golden / "zero/z3_w2/global_step2", step / "global_step2", dirs_exist_ok=True)
shapes = torch.load(step / "global_step2/zero_pp_rank_0_mp_rank_00_model_states.pt", weights_only=False)["param_shapes"]
gathered = {name: torch.zeros(size, dtype=torch.bfloat16) for group in shapes for name, size in group.items()}
tensors(step / "model.safetensors", gathered)
text(step / "latest", "global_step2")
text(step / "config.json", CONFIG)
text(step / "trainer_state.json", STATE)
saved(step / "scheduler.pt", scheduler)
for rank in (0, 1):
    saved(step / f"rng_state_{rank}.pth", rng)

# Megatron-Core's, with a config.json: Mixtral, its vocabulary padded, layers stacked and experts on their own.
step = here / "megatron/iter_0000001"
layers, experts, hidden, ffn, vocab = 2, 2, 4, 3, 5
stacked = {"embedding.word_embeddings.weight": (vocab + 1, hidden), "output_layer.weight": (vocab + 1, hidden),
           "decoder.final_layernorm.weight": (hidden,)}
for name, shape in {"self_attention.linear_qkv.weight": (8, hidden), "self_attention.linear_proj.weight": (hidden, 4),
                    "self_attention.linear_qkv.layer_norm_weight": (hidden,), "pre_mlp_layernorm.weight": (hidden,),
                    "mlp.router.weight": (experts, hidden), "mlp.experts.experts.linear_fc1.weight": (experts, 2 * ffn, hidden),
                    "mlp.experts.experts.linear_fc2.weight": (experts, hidden, ffn)}.items():
    stacked[f"decoder.layers.{name}"] = (layers, *shape)
dcp.save({n: torch.randn(shape) for n, shape in stacked.items()}, checkpoint_id=str(step), no_dist=True)
saved(step / "common.pt", {"iteration": 1})
text(step / "metadata.json", {"sharded_backend": "torch_dist", "sharded_backend_version": 1})
text(step / "config.json", {
    "model_type": "mixtral", "vocab_size": vocab, "num_hidden_layers": layers, "hidden_size": hidden,
    "num_attention_heads": 2, "num_key_value_heads": 1, "intermediate_size": ffn, "num_local_experts": experts,
    "torch_dtype": "float32"})

# FSDP1's flat units of two ranks, and what says which parameters they hold.
shapes = {"emb.weight": [3, 2], "lin.weight": [3, 2], "lin.bias": [3]}
for rank in (0, 1):
    (here / "flat").mkdir(exist_ok=True)
    shutil.copy(golden / f"ranks/orig/model_world_size_2_rank_{rank}.pt", here / "flat")
    saved(here / f"flat/optim_world_size_2_rank_{rank}.pt", {
        "state": {0: {"step": torch.tensor(1.0), "exp_avg": torch.randn(8), "exp_avg_sq": torch.rand(8)}},
        "param_groups": [{"lr": 0.01, "betas": (0.9, 0.999), "eps": 1e-8, "weight_decay": 0.01, "params": [0]}]})
text(here / "flat/import.json", {"unshard_fsdp_units": 1, "units": [
    {"name": "", "params": [{"name": n, "shape": s} for n, s in shapes.items()]}]})

# State dicts of plain DCP: the optimizer's options with each parameter; Accelerate's with two models; below "app".
params = {f"p{i}.weight": torch.randn(2, 3) for i in range(3)}
options = {"lr": 0.1, "betas": (0.9, 0.999), "eps": 1e-8, "weight_decay": 0.0, "amsgrad": False, "maximize": None}
flat = {f"state.{n}.{k}": torch.rand_like(p) for n, p in params.items() for k in ("exp_avg", "exp_avg_sq")}
flat |= {f"state.{n}.step": torch.tensor(2.0) for n in params}
each = {f"param_groups.{n}.{k}": 0.5 if (n, k) == ("p2.weight", "lr") else v for n in params for k, v in options.items()}


def distributed(path, state):
    shutil.rmtree(here / path, ignore_errors=True)
    dcp.save(state, checkpoint_id=str(here / path), no_dist=True)


distributed("plain/flat", {"model": params, "optimizer": {**flat, **each}})
distributed("plain/app", {"app": {"model": params, "optim": {"state": {n: {
    k: torch.rand_like(p) for k in ("exp_avg", "exp_avg_sq")} for n, p in params.items()},
    "param_groups": [{**options, "params": list(params)}]}}})
for k in (0, 1):
    distributed(f"models/state/pytorch_model_fsdp_{k}", {"model": params})
    distributed(f"models/state/optimizer_{k}", {"optimizer": {**flat, "param_groups": [
        {**options, "params": list(params)}, {**options, "params": []}]}})
text(here / "models/state/config.json", CONFIG)
saved(here / "models/state/scheduler.bin", scheduler)
saved(here / "models/state/random_states_0.pkl", rng)

# A Trainer's of an adapter: no parameter is without weight decay, so one of its two groups is empty.
step = here / "models/checkpoint-2"
low_rank = {f"base_model.model.model.layers.0.mlp.up_proj.lora_{x}.default.weight": torch.rand(2, 2) for x in "AB"}
distributed("models/checkpoint-2/pytorch_model_fsdp_0", {"model": {
    **{n.replace(".default", ""): p for n, p in low_rank.items()}, "base_model.model.model.norm.weight": torch.ones(2)}})
distributed("models/checkpoint-2/optimizer_0", {"optimizer": {
    **{f"state.{n}.{k}": torch.rand_like(p) for n, p in low_rank.items() for k in ("exp_avg", "exp_avg_sq")},
    **{f"state.{n}.step": torch.tensor(2.0) for n in low_rank},
    "param_groups": [{**options, "params": list(low_rank)}, {**options, "params": []}]}})
text(step / "trainer_state.json", STATE)
text(step / "config.json", CONFIG | {"auto_map": {"AutoModel": "modeling_x.X", "AutoTokenizer": ["words.B", None]},
                                     "text_config": {"vocab_size": 6, "tie_word_embeddings": False}})
text(step / "adapter_config.json", {"peft_type": "LORA", "r": 2, "base_model_name_or_path": "x"})
saved(step / "scheduler.pt", scheduler)
saved(step / "rng_state_0.pth", rng)

# A Trainer's mixture of experts without shards: in its file are the names that save_pretrained publishes.
from transformers import Qwen3MoeConfig, Qwen3MoeForCausalLM  # noqa: E402

experts = Qwen3MoeForCausalLM(Qwen3MoeConfig(
    vocab_size=6, hidden_size=4, intermediate_size=4, moe_intermediate_size=3, num_hidden_layers=2, num_attention_heads=2,
    num_key_value_heads=1, head_dim=2, num_experts=2, num_experts_per_tok=1, tie_word_embeddings=True,
    mlp_only_layers=[1]))
step = here / "renamed/checkpoint-2"
experts.save_pretrained(step)
groups = [[p for n, p in experts.named_parameters() if ("norm" in n) == no_decay] for no_decay in (False, True)]
trained = torch.optim.AdamW([{"params": groups[0]}, {"params": groups[1], "weight_decay": 0.0}])
for p in experts.parameters():
    p.grad = torch.ones_like(p)
trained.step()
text(step / "trainer_state.json", STATE)
saved(step / "optimizer.pt", trained.state_dict())
saved(step / "scheduler.pt", scheduler)
saved(step / "rng_state.pth", rng)

sys.path.insert(0, str(here.parents[1] / "e2e"))
import conftest  # noqa: E402

# DeepSpeed's with AutoTP, with experts, and with AutoEP.
with tempfile.TemporaryDirectory() as made:
    conftest.generated("tensor_parallel.py", 4, pathlib.Path(made) / "cut", ["z1-bf16-tp2", "z3-bf16-tp2"])
    for case in ("z1", "z3"):
        shutil.copytree(f"{made}/cut/{case}-bf16-tp2/run/global_step3", here / f"cut_{case}/global_step3", dirs_exist_ok=True)
        text(here / f"cut_{case}/latest", "global_step3")
    conftest.generated("experts.py", 2, pathlib.Path(made) / "experts", ["z1-bf16-ep2"])
    (saved_by_engine,) = pathlib.Path(made, "experts/z1-bf16-ep2/run").glob("global_step*")
    shutil.copytree(saved_by_engine, here / "cut_experts" / saved_by_engine.name, dirs_exist_ok=True)
    text(here / "cut_experts/latest", saved_by_engine.name)
    conftest.generated("autoep.py", 2, pathlib.Path(made) / "autoep", ["qwen2_moe-z2-bf16-ep2"])
    run = pathlib.Path(made, "autoep/qwen2_moe-z2-bf16-ep2/run")
    shutil.copytree(run / "global_step3", here / "cut_autoep/global_step3", dirs_exist_ok=True)
    for name in ("latest", "config.json"):
        shutil.copyfile(run / name, here / "cut_autoep" / name)

# DeepSpeed's of other settings, and what other programs save by torch.distributed.checkpoint: kind -> script of
# tests/e2e/make or of here, ranks, case, what is copied.
OTHERS = {
    "engine_pipe": ("deepspeed_engine.py", 2, "z1-bf16-pipe", "run"),
    "engine_subgroups": ("deepspeed_engine.py", 2, "z3-bf16-subgroups", "run"),
    "engine_fp16": ("deepspeed_engine.py", 2, "z2-fp16", "run"),
    "engine_experts": ("experts.py", 2, "z2-bf16-ep2-mixed", "run"),
    "engine_autoep": ("autoep.py", 2, "qwen3_moe-z3-bf16-ep2", "run"),
    "engine_adapter/checkpoint-2": ("peft_run.py", 2, "lora-z2", "run/checkpoint-2"),
    "saved_flat": ("raw_optimizer.py", 2, "fsdp1-groups", "run/ckpt"),
    "saved_numbered": ("raw_optimizer.py", 2, "fsdp2-groups", "run/ckpt"),
    "saved_factors": ("raw_optimizer.py", 2, "plain-adafactor", "run/ckpt"),
    "saved_parts": ("plain_dcp.py", 3, "hf", "run/ckpt"),
    "saved_dense": (here / "megatron_small.py", 1, "dense", "run"),
    "saved_vision": (here / "megatron_small.py", 1, "vision", "run"),
    "saved_optimizer": (here / "megatron_small.py", 1, "optimizer", "run"),
    "saved_buckets": (here / "megatron_small.py", 1, "buckets", "run"),
    "saved_space": ("torch_dist_model_space.py", 4, "llama-tp2-space", "run"),
}
with tempfile.TemporaryDirectory() as made:
    for kind, (script, ranks, case, within) in OTHERS.items():
        conftest.generated(script, ranks, pathlib.Path(made) / kind, [case])
        shutil.rmtree(here / kind, ignore_errors=True)
        shutil.copytree(pathlib.Path(made) / kind / case / within, here / kind,
                        ignore=shutil.ignore_patterns("*.py", "README.md", "training_args.bin"))
        if kind == "saved_space" or script == here / "megatron_small.py":
            shutil.copyfile(pathlib.Path(made) / kind / case / "hf/config.json", here / kind / "iter_0000002/config.json")

    # Converted by a program that does not undo round_robin_gradients.
    conftest.generated("deepspeed_engine.py", 2, pathlib.Path(made) / "dealt", ["z2-bf16-roundrobin"])
    shutil.rmtree(here / "engine_dealt", ignore_errors=True)
    (here / "engine_dealt").mkdir()
    subprocess.run([sys.executable, "-m", "deepspeed.checkpoint.ds_to_universal", "--inject_missing_state", "--input_folder",
                    f"{made}/dealt/z2-bf16-roundrobin/run/global_step3", "--output_folder",
                    here / "engine_dealt/global_step3_universal", "--num_extract_workers", "1", "--num_merge_workers", "1"],
                   env={**os.environ, "DS_ACCELERATOR": "cpu"}, check=True)

# Of tests/e2e's random checkpoints those that reach code which no other directory reaches.
import random_ranks  # noqa: E402
import random_zero  # noqa: E402

for name, make, seed in (("dealt", random_zero.engine, 184), ("one_rank", random_ranks.dtensors, 223)):
    shutil.rmtree(here / name, ignore_errors=True)
    make(random.Random(seed), here, name)
