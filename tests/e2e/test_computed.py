"""What each view that is computed on read gets for nothing, because its tensors are read as all others are: export with
progress, slices, the GPU, vLLM's loader, and `show`'s bytes for each byte, which are counted here. What the views compute is
compared with torch in test_merged.py, test_mean.py, test_ema.py, test_fp8.py and test_expert_forms.py."""

import json
import os
import re
import subprocess
import types

import peft
import pytest
import torch
import torch.distributed.checkpoint as dcp
from safetensors import safe_open
from transformers import AutoModelForCausalLM, GptOssConfig, LlamaConfig

import trees
from conftest import LONGEST_S, UNSHARD
from test_device import gpus  # noqa: F401
from test_export import content
from test_python import unshard
from test_serving import Model, loader_of, of, vllm  # noqa: F401
from unshard.dcp import Reader

SMALL = dict(num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=2, vocab_size=64, tie_word_embeddings=False)


def llama(width, seed):
    torch.manual_seed(seed)
    return AutoModelForCausalLM.from_config(LlamaConfig(hidden_size=width, intermediate_size=2 * width, head_dim=width // 2, **SMALL),
                                            dtype=torch.bfloat16)


def gpt_oss(width, seed):
    torch.manual_seed(seed)
    return AutoModelForCausalLM.from_config(GptOssConfig(hidden_size=width, intermediate_size=width, head_dim=width // 2,
                                                         num_local_experts=4, num_experts_per_tok=2, **SMALL), dtype=torch.bfloat16)


def save(model, where):
    """As FSDP saves it, with a moving mean beside the weights."""
    state = model.state_dict()
    dcp.save({"model": state, "ema": {n: t / 2 for n, t in state.items()}}, checkpoint_id=where, no_dist=True)
    model.config.save_pretrained(where)


def save_adapter(model, where, base):
    model.save_pretrained(base)
    adapted = peft.get_peft_model(model, peft.LoraConfig(r=8, lora_alpha=16, target_modules=["q_proj", "down_proj"],
                                                         init_lora_weights=False), autocast_adapter_dtype=False)
    adapted.save_pretrained(where)


# view, what it needs of `options`, the model
VIEWS = {"merged": ("merged", {"model": "{}/base"}, llama), "mean": ("mean-2", {}, llama), "ema": ("ema", {}, llama),
         "fp8": ("weights-fp8", {}, llama), "split": ("weights", {"experts": "split"}, gpt_oss),
         "fused": ("weights", {"experts": "fused"}, gpt_oss)}
LATER = [pytest.param(v, marks=[] if v == "merged" else pytest.mark.long) for v in VIEWS]


@pytest.fixture
def shown(tmp_path):
    """shown(VIEW) -> the checkpoint, the view's name, its options; the model is `width` wide"""
    def make(name, width=128):
        view, options, model = VIEWS[name]
        run = tmp_path / "runs/run"
        for step in (1, 2):
            if name == "merged":
                save_adapter(model(width, step), run / f"checkpoint-{step}", tmp_path / "base")
            else:
                save(model(width, step), run / f"checkpoint-{step}")
        return run / "checkpoint-2", view, {k: v.format(tmp_path) for k, v in options.items()}
    return make


def listed(options, **more):
    return ",".join(f"{k}={v}" for k, v in (options | more).items())


def as_bytes(tensor):
    return torch.empty(tensor.shape, dtype=tensor.dtype).copy_(tensor).reshape(-1).view(torch.uint8)


def cuts(tensor):
    """Indices of parts: rows from the middle, and with a second dimension a few columns of them."""
    n = tensor.shape[0]
    middle = slice(n // 3, n // 3 + 5)
    return [(middle,), (slice(n - 1, n),)] + ([(middle, slice(1, 4))] if tensor.dim() > 1 else [])


@pytest.mark.long
@pytest.mark.parametrize("name", VIEWS)
def test_export_shows_progress_and_is_the_mount_s(shown, mount, faults, tmp_path, name):
    checkpoint, view, options = shown(name, width=512)
    out, (terminal, ours) = tmp_path / "out", os.openpty()
    with faults.armed("write", nth=2, action="hold", path=f"{out}.partial"):
        child = subprocess.Popen([UNSHARD, "export", checkpoint, out, "--view", view, "-o", listed(options, settle=0, store="none")],
                                 env=faults.env, stdout=subprocess.DEVNULL, stderr=ours)
        os.close(ours)
        while not faults.struck:
            assert child.poll() is None
        faults.pass_time(2)
    said = b""
    try:
        while data := os.read(terminal, 4096):
            said += data
    except OSError:  # the other end is closed
        pass
    os.close(terminal)
    assert child.wait(LONGEST_S) == 0, said
    assert re.search(rb"writing: [\d.]+ \w+ of [\d.]+ \w+, [\d.]+ \w+/s, [\d:]+ left", said), said
    assert content(out) == content(mount(checkpoint.parents[1], listed(options)) / view / "run/checkpoint-2")


@pytest.mark.parametrize("name", LATER)
def test_slices_are_those_of_the_whole(shown, mount, name):
    checkpoint, view, options = shown(name)
    where = mount(checkpoint.parents[1], listed(options)) / view / "run/checkpoint-2"
    whole = trees.weights(where)
    with unshard.safe_open(checkpoint, view=view, **options) as ours:
        for file in where.glob("*.safetensors"):
            with safe_open(file, framework="pt") as theirs:
                for n in theirs.keys():
                    for cut in cuts(whole[n]):
                        want = whole[n][cut]
                        for got in (theirs.get_slice(n)[cut], ours.get_slice(n)[cut]):
                            assert torch.equal(as_bytes(got), as_bytes(want)), (n, cut)
    state = {n: torch.empty_like(t) for n, t in whole.items()}
    dcp.load(state, storage_reader=Reader(checkpoint, view, **options), no_dist=True)
    assert all(torch.equal(as_bytes(state[n]), as_bytes(t)) for n, t in whole.items())


@pytest.mark.parametrize("name", LATER)
def test_the_gpu_and_vllm_get_the_same_bytes(shown, gpus, vllm, name):  # noqa: F811
    checkpoint, view, options = shown(name)
    want = unshard.load_file(checkpoint, view, **options)
    on_gpu = unshard.load_file(checkpoint, view, device="cuda:0", **options)
    assert gpus.copied_bytes() == sum(t.nbytes for t in want.values())
    for config in ({}, {"slices": True}):
        loader = loader_of(vllm, model_loader_extra_config={"view": view, **config, **options})
        loaded = dict(loader.load_model(vllm_config=types.SimpleNamespace(model=Model()), model_config=of(checkpoint)).loaded)
        assert want.keys() == on_gpu.keys() == loaded.keys()
        for n, t in want.items():
            for got in (on_gpu[n], loaded[n].clone()):
                assert got.dtype == t.dtype and torch.equal(as_bytes(got), as_bytes(t)), n


@pytest.mark.long
@pytest.mark.parametrize("name", VIEWS)
def test_show_s_bytes_for_each_byte_are_those_that_are_read(shown, mount, command, name):
    checkpoint, view, options = shown(name, width=512)
    said = " ".join(command("show", checkpoint, "-o", listed(options, view=view, settle=0)).stdout.split())
    found = re.search(r"in all, ([\d.]+) bytes are read for each byte shown", said)
    m = mount(checkpoint.parents[1], listed(options, store="none"))
    files = list((m / view / "run/checkpoint-2").glob("*.safetensors"))
    size = sum(f.stat().st_size for f in files)

    def read_bytes():
        return json.loads((m / ".unshard/stats.json").read_text())["source_read_bytes"]

    before = read_bytes()
    assert sum(len(f.read_bytes()) for f in files) == size
    counted = (read_bytes() - before) / size
    assert counted == pytest.approx(float(found[1]) if found else 1, abs=0.03)  # headers of the files' items are read, too


@pytest.mark.parametrize("verb", [["diff", "{0}", "{0}"], ["warm", "{0}"]], ids=["diff", "warm"])
def test_other_verbs_refuse_a_form_of_experts(command, tmp_path, verb):
    """They look at what was saved, whatever form a view has."""
    done = command(*(word.format(tmp_path) for word in verb), "-o", "experts=split", check=False)
    assert done.returncode == 2 and "experts" in done.stderr and not done.stdout
