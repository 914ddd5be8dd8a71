"""Checkpoints that are one file: in the views of weights a directory, in all others the file itself."""

import json
import os
import sys
from pathlib import Path

import pytest
import torch

import trees

sys.path.insert(0, str(Path(__file__).parent / "make"))

WEIGHTS = ["weights", "weights-bf16", "weights-fp16", "weights-fp32"]
DTYPES = {"weights-bf16": torch.bfloat16, "weights-fp16": torch.float16, "weights-fp32": torch.float32}


def as_shown(view, tensors):
    dtype = DTYPES.get(view)
    return {n: t.to(dtype) if dtype and t.is_floating_point() else t for n, t in tensors.items()}


@pytest.mark.parametrize("case", ["one", "one-weights", "one-rich"])
def test_a_plain_lightning_file(made, mount, command, case):
    """Against the live module, and the file that save_weights_only writes of the same training."""
    from lightning_net import Module

    folder = made("l1", case)
    live = trees.tensors(folder / "live.safetensors")
    m = mount(folder)
    name = sorted(os.listdir(folder / "run"))[-1]
    own = torch.load(folder / "run" / name, weights_only=True)
    for view in WEIGHTS:
        assert sorted(os.listdir(m / view / "run")) == sorted(
            n for f in os.listdir(folder / "run") for n in (f, f.removesuffix(".ckpt")))
        want = as_shown(view, live)
        trees.assert_same(trees.tensors(m / view / "run" / name.removesuffix(".ckpt") /
                                        "model.safetensors"), want)
        file = torch.load(m / view / "run" / name, weights_only=True)
        trees.assert_same(file["state_dict"], want)
        assert file.keys() == own.keys() - {"optimizer_states", "callbacks", "lr_schedulers"}
        assert all(file[k] == own[k] for k in file if k != "state_dict")
    module = Module.load_from_checkpoint(m / "weights/run" / name, weights_only=True)
    trees.assert_same(dict(module.state_dict()), live)
    if case == "one":
        alone = torch.load(made("l1", "one-weights") / "run" / name, weights_only=True)
        assert alone.keys() == torch.load(m / "weights/run" / name, weights_only=True).keys()
    for view in ("full", "full-fsdp", "dcp", "universal"):
        assert (m / view / "run" / name).read_bytes() == (folder / "run" / name).read_bytes()
    command("check", "--deep", folder)
    assert name in command("ls", folder).stdout
    assert "load_from_checkpoint" in command("show", folder / "run" / name).stdout


@pytest.mark.parametrize("file, shown", [("model.pt", "model.pt"), ("step=2.ckpt", "step=2")])
def test_the_directory_unshard_of_one_file(mount, tmp_path, file, shown):
    """As docs/operation.md has it: in the views of weights, where the file is a directory. The others show SOURCE's file."""
    content = {"state_dict": tensors()}
    if file.endswith(".ckpt"):
        content |= {"pytorch-lightning_version": "2.6.6", "epoch": 0, "global_step": 2, "loops": {}, "callbacks": {},
                    "optimizer_states": [], "lr_schedulers": []}
    (tmp_path / "run").mkdir()
    torch.save(content, tmp_path / "run" / file)
    m = mount(tmp_path / "run")
    for view in WEIGHTS:
        told = m / view / shown / ".unshard"
        assert sorted(os.listdir(told)) == ["info.json", "problems.txt", "provenance.json", "tensors.json"]
        assert json.loads((told / "info.json").read_text())["path"] == file
        assert {t["name"] for t in json.loads((told / "tensors.json").read_text())} >= set(tensors())
        assert ".unshard" not in os.listdir(m / view / shown)
    for view in ("full", "dcp"):
        assert (m / view / file).is_file() and not (m / view / shown / ".unshard").exists()


def tensors():
    torch.manual_seed(1)
    return {"layers.0.weight": torch.randn(5, 3), "layers.0.bias": torch.randn(5).bfloat16(),
            "count": torch.tensor(7)}


def others():
    """What a script saves beside the model."""
    return {"optimizer": torch.optim.AdamW([torch.ones(3)]).state_dict(), "epoch": 3}


FILES = {"below-model.pt": lambda: {"model": tensors(), **others()},
         "below-state_dict.pth": lambda: {"state_dict": tensors(), "arch": "resnet"},
         "below-module.pt": lambda: {"module": tensors(), "args": {"lr": 0.1}},
         "below-net.bin": lambda: {"net": tensors(), **others()},
         "composer-ep0-ba4-rank0.pt": lambda: {"state": {"model": tensors(), "optimizers": {}}, "rng": []},
         "alone.pt": tensors,
         "alone.ckpt": tensors}


@pytest.mark.parametrize("name", FILES)
def test_a_state_dict_is_a_directory(mount, tmp_path, command, name):
    (tmp_path / "source/run").mkdir(parents=True)
    torch.save(FILES[name](), tmp_path / "source/run" / name)
    m = mount(tmp_path / "source")
    shown = name.removesuffix(".ckpt")
    for view in WEIGHTS:
        assert trees.listing(m / view / "run" / shown) == ["model.safetensors"]
        trees.assert_same(trees.tensors(m / view / "run" / shown / "model.safetensors"),
                          as_shown(view, tensors()))
    assert (m / "full/run" / name).read_bytes() == (tmp_path / "source/run" / name).read_bytes()
    assert "ok" in command("ls", tmp_path / "source").stdout


PASSED = {"data.pt": {"inputs": torch.ones(4), "labels": torch.ones(4)}, "args.bin": {"lr": 0.1},
          "optimizer.pt": torch.optim.AdamW([torch.ones(3)]).state_dict(),
          "tensor.pt": torch.ones(4), "list.pth": [torch.ones(4)]}


def test_what_is_no_state_dict_stays_a_file(mount, tmp_path, command):
    run = tmp_path / "source/run"
    run.mkdir(parents=True)
    for name, value in PASSED.items():
        torch.save(value, run / name)
    (run / "cut.pt").write_bytes((run / "data.pt").read_bytes()[:200])
    (run / "text.bin").write_text("no archive")
    m = mount(tmp_path / "source")
    for view in os.listdir(m):
        assert trees.listing(m / view) == trees.listing(tmp_path / "source")
    assert (m / "weights/run/cut.pt").read_bytes() == (run / "cut.pt").read_bytes()
    command("ls", tmp_path / "source")


def test_files_of_old_torch_are_named_and_refused(mount, tmp_path, command):
    (tmp_path / "source/run").mkdir(parents=True)
    torch.save(tensors(), tmp_path / "source/run/old.pt", _use_new_zipfile_serialization=False)
    m = mount(tmp_path / "source")
    assert "torch before 1.6" in (m / "weights/run/old.pt/UNSHARD_PROBLEM.txt").read_text()
    done = command("check", tmp_path / "source", check=False)
    assert done.returncode == 1 and "[torch_file_legacy]" in done.stdout and "old.pt" in done.stdout


@pytest.mark.sanitized
def test_a_file_that_is_replaced(mount, tmp_path, eventually):
    """A checkpoint becomes another, then none, then one again, under the same name."""
    file = tmp_path / "source/run/last.pt"
    file.parent.mkdir(parents=True)
    torch.save({"model": tensors()}, file)
    m = mount(tmp_path / "source", changing=True)
    shown = m / "weights/run/last.pt"
    first = trees.tensors(shown / "model.safetensors")
    trees.assert_same(first, tensors())
    twice = {n: t + t for n, t in tensors().items()}
    for value, now in (({"model": twice}, twice), ({"lr": 0.1}, None), ({"model": tensors()}, tensors())):
        torch.save(value, tmp_path / "new")
        os.replace(tmp_path / "new", file)
        if now is None:
            eventually(lambda: shown.is_file() and shown.read_bytes() == file.read_bytes())
        else:
            eventually(lambda now=now: (shown / "model.safetensors").is_file() and torch.equal(
                trees.tensors(shown / "model.safetensors")["layers.0.weight"], now["layers.0.weight"]))


def test_config_beside_it_is_shown(mount, tmp_path):
    import models

    (tmp_path / "source/run").mkdir(parents=True)
    model = models.llama(torch.bfloat16, tie=False)
    model.config.save_pretrained(tmp_path / "source/run")
    torch.save({"model": model.state_dict()}, tmp_path / "source/run/model.pt")
    from transformers import AutoModelForCausalLM

    m = mount(tmp_path / "source")
    loaded = AutoModelForCausalLM.from_pretrained(m / "weights/run/model.pt")
    kept = loaded.state_dict()
    trees.assert_same(kept, {n: t for n, t in model.state_dict().items() if n in kept})
