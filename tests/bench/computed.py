"""Views that are computed when they are read, against the programs that write a copy: mean-K against mergekit, weights-fp8 and
-o experts=fused against a script."""

import json
import shutil
import statistics
import subprocess
import sys
from pathlib import Path

import torch
from safetensors.torch import save_file
from transformers import Qwen3MoeConfig

import checkpoints

EXPERTS = 32
WAYS = {
    "mean-3": {"mergekit": "mergekit's linear merge, load_file", "mean": "mount, load_file of `mean-3`"},
    "weights-fp8": {"script": "Fp8Quantize of transformers for each matrix, save_file, load_file",
                    "fp8": "mount, load_file of `weights-fp8`"},
    "experts=fused": {"stack": "torch.stack of each layer's experts, save_file, load_file",
                      "fused": "mount with `experts=fused`, load_file of `weights`"},
}


def write(folder, config, tensors):
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(config))
    save_file({n: t.contiguous() for n, t in tensors.items()}, folder / "model.safetensors", metadata={"format": "pt"})


def make_mean(work, size):
    config, tensors = checkpoints.llama(size)
    for step in (1, 2, 3):
        write(work / f"run/checkpoint-{step}", config, {n: torch.roll(t, step) for n, t in tensors.items()})


def make_fp8(work, size):
    config, tensors = checkpoints.llama(size)
    write(work / "run/checkpoint-1", config, {n: (t.float().clamp(-4, 4) / 64).to(t.dtype) for n, t in tensors.items()})


def make_experts(work, size):
    config = Qwen3MoeConfig(vocab_size=1000, hidden_size=1024, moe_intermediate_size=512, num_experts=EXPERTS,
                            num_hidden_layers=max(1, round(size / (EXPERTS * 3 * 512 * 1024 * 2))), num_attention_heads=8,
                            num_key_value_heads=2, head_dim=128, architectures=["Qwen3MoeForCausalLM"]).to_dict()
    tensors = {"model.embed_tokens.weight": torch.ones(1000, 1024, dtype=torch.bfloat16)}
    for layer in range(config["num_hidden_layers"]):
        for e in range(EXPERTS):
            for name, shape in ("gate_proj", (512, 1024)), ("up_proj", (512, 1024)), ("down_proj", (1024, 512)):
                tensors[f"model.layers.{layer}.mlp.experts.{e}.{name}.weight"] = torch.randn(shape).bfloat16()
    write(work / "run/checkpoint-1", config, tensors)


MAKERS = {"mean-3": make_mean, "weights-fp8": make_fp8, "experts=fused": make_experts}


def once(programs, work, way):
    done = subprocess.run([sys.executable, Path(__file__).with_name("computed_once.py"), way, programs, work], check=True,
                          capture_output=True, text=True)
    shutil.rmtree(work / "made", ignore_errors=True)
    return json.loads(done.stdout.splitlines()[-1])


def measure(programs, work, size, n_rounds):
    for view, ways in WAYS.items():
        folder = work / f"computed-{view}"
        MAKERS[view](folder, size)
        one = (folder / "run/checkpoint-1/model.safetensors").stat().st_size
        results = {way: [] for way in ways}
        for _ in range(n_rounds):
            for way in ways:
                results[way].append(once(programs, folder, way))
        print(f"\n### {view}, a model of {one / 1e6:.0f} MB, bf16\n")
        print("| | all tensors touched | peak memory | written |\n|---|---:|---:|---:|")
        for way, label in ways.items():
            median = {k: statistics.median(r[k] for r in results[way]) for k in results[way][0]}
            print(f"| {label} | {median['seconds']:.2f} s | {median['peak_bytes'] / 1e6:.0f} MB "
                  f"| {median['written_bytes'] / 1e6:.0f} MB |", flush=True)
        shutil.rmtree(folder)
