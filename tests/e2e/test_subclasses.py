"""Checkpoints of tensors that are not plain: what is in an item is known before it is listed."""

import os

import pytest
import torch

import trees

PROBLEM = "UNSHARD_PROBLEM.txt"
# What is wrong with a checkpoint, and the views that show it all the same.
REFUSED = [("int8", "torchao.quantization.Int8Tensor", {"dcp"}),
           ("subclass", "__main__.Marked", {"dcp"}),
           ("subclass-zstd", "__main__.Marked", {"dcp"}),
           ("conj", "conjugate", {"dcp"}),
           ("adam8bit", "torchao.optim.subclass_8bit.OptimState8bit",
            {"dcp", "weights", "weights-bf16", "weights-fp16", "weights-fp32"})]


@pytest.mark.parametrize("case", ["float8", "float8-zstd"])
def test_what_float8_wraps_is_served(made, mount, command, case):
    folder = made("s2", case)
    m = mount(folder / "run")
    live = trees.tensors(folder / "live-0.safetensors")
    weights = {n.removeprefix("model."): t for n, t in live.items() if n.startswith("model.")}
    trees.assert_same(trees.tensors(m / "weights/ckpt/model.safetensors"), weights)
    for name, weight in weights.items():
        made_of = {s: torch.load(m / f"universal/ckpt/global_step2/zero/{name}/{s}.pt")["param"]
                   for s in ("fp32", "exp_avg", "exp_avg_sq")}
        trees.assert_same(made_of, {"fp32": weight.float(), **{
            s: live[f"optimizer.state.{name}.{s}"].float() for s in ("exp_avg", "exp_avg_sq")}})
    command("check", "--deep", folder / "run")


@pytest.mark.parametrize("case,cls,shown", REFUSED, ids=[c[0] for c in REFUSED])
def test_others_are_refused_by_name_when_listed(made, mount, command, case, cls, shown):
    folder = made("s2", case)
    m = mount(folder / "run")
    views = {v for v in os.listdir(m) if (m / v / "ckpt").is_dir() and
             not (m / v / "ckpt" / PROBLEM).exists()}
    assert views == shown
    for view in sorted(os.listdir(m)):
        if view.startswith("weights") and view not in shown:
            assert os.listdir(m / view / "ckpt") == [PROBLEM]
            assert cls in (m / view / "ckpt" / PROBLEM).read_text()
    for deep in ([], ["--deep"]):
        done = command("check", *deep, folder / "run", check=False)
        assert done.returncode == (0 if "weights" in shown else 1)
        assert "[tensors_not_plain]" in done.stdout and cls in done.stdout
        assert "unreadable" not in done.stdout and "copy it back" not in done.stdout
    if "weights" in shown:
        live = trees.tensors(folder / "live-0.safetensors")
        trees.assert_same(trees.tensors(m / "weights/ckpt/model.safetensors"),
                          {n.removeprefix("model."): t for n, t in live.items()})
