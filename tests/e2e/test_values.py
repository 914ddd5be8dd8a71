"""`unshard show --values` against torch: every figure of random tensors of every dtype, and the update that Adam made.

Counts, extremes and magnitudes are compared exactly. Sums are compared with math.fsum of the exactly widened values."""

import json
import math
import random
import shutil

import pytest
import torch
import torch.distributed.checkpoint as dist_cp
from safetensors.torch import save_file
from torch.distributed.checkpoint.state_dict import get_state_dict

from conftest import ROOT, UNSHARD
from test_diff import COMPLEX, FLOATS, INTEGERS, drawn, peak_bytes, save, zeros
from test_diff import values as widened

GOLDEN = ROOT / "tests/golden"
OPTIONS = ("-o", "settle=0,store=none")
SHAPES = [(), (0,), (1,), (7,), (3, 5), (2049,), (40, 51), (65537,), (3, 70001), (5, 0, 3), (129, 513), (2, 3, 4, 5)]


def measured(command, checkpoint, *options):
    done = command("show", checkpoint, "--values", "--json", *OPTIONS, *options, check=False)
    return json.loads(done.stdout)["values"]


def expected(tensor, small=0.0, rows=None):
    """What --values says of a tensor."""
    flat = [abs(x) if isinstance(x, complex) else x for x in widened(tensor)]
    values = [float(x) for x in flat if not isinstance(x, float) or math.isfinite(x)]
    counts = {}
    for x in values:
        if x:
            e = min(max(math.frexp(x)[1] - 1, -80), 15)
            counts[e] = counts.get(e, 0) + 1
    span = range(min(counts), max(counts) + 1) if counts else []
    rows = rows or (tensor.shape[0] if tensor.dim() > 1 and tensor.numel() else 0)
    each = len(flat) // rows if rows else 0
    return {"elements": len(flat), "zeros": sum(x == 0 for x in values), "negative": sum(x < 0 for x in values),
            "nan": sum(x != x for x in flat), "infinite": sum(isinstance(x, float) and math.isinf(x) for x in flat),
            "min": min(values, default=0), "max": max(values, default=0),
            "magnitudes": [min(counts), *[counts.get(e, 0) for e in span]] if counts else [],
            "rows": rows, "small_rows": sum(all(abs(x) <= small for x in flat[r * each:(r + 1) * each]) for r in range(rows)),
            "mean": math.fsum(values) / len(values) if values else 0, "norm": math.sqrt(math.fsum(x * x for x in values)),
            "sum_abs": math.fsum(map(abs, values)) / max(len(values), 1)}


def assert_measures(got, want, what):
    slack = want.pop("sum_abs")
    exact = "complex" not in what  # torch's absolute value may be rounded otherwise
    for key, value in want.items():
        if key == "norm":
            assert math.isclose(got[key], value, rel_tol=1e-12), (what, key, got[key], value)
        elif key == "mean":
            assert math.isclose(got[key], value, rel_tol=1e-12, abs_tol=1e-12 * slack), (what, key, got[key], value)
        elif key in ("min", "max") and not exact:
            assert math.isclose(got[key], value, rel_tol=1e-15), (what, key)
        elif key != "magnitudes" or exact:
            assert got[key] == value, (what, key, got[key], value)


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.long) for seed in (1, 2))])
def test_figures_are_torchs(command, tmp_path, seed):
    rng = random.Random(seed)
    tensors = {}
    for dtype in FLOATS + INTEGERS + (COMPLEX if seed == 0 else []):
        for shape in rng.sample(SHAPES, 3):
            t = drawn(rng, dtype, shape)
            if t.dim() > 1 and t.numel():
                for row in range(t.shape[0]):
                    if rng.random() < 0.3:
                        t[row] = torch.zeros(shape[1:], dtype=dtype)
            tensors[f"{dtype}-{'x'.join(map(str, shape))}".replace("torch.", "")] = t
    got = {x["name"]: x for x in measured(command, save(tmp_path / "model", tensors))}
    assert set(got) == set(tensors)
    for name, t in tensors.items():
        assert (got[name]["expert"], got[name]["why"], got[name]["state"]) == (None, None, None)
        assert got[name]["shape"] == list(t.shape) and f"torch.{got[name]['dtype']}" == str(t.dtype)
        assert_measures(got[name], expected(t), name)


def test_experts_of_one_tensor_are_measured_each(command, tmp_path):
    rng = random.Random(7)
    t = drawn(rng, torch.bfloat16, (3, 70, 1000))
    t[1] = 0
    t[2, 5:9] = 0
    folder = tmp_path / "model"
    folder.mkdir()
    save_file({"model.layers.0.mlp.experts.down_proj": t}, folder / "model.safetensors")
    got = measured(command, folder)
    assert [x["expert"] for x in got] == [0, 1, 2, None]
    for x in got[:3]:
        assert_measures(x, expected(t[x["expert"]]), "expert")
    assert_measures(got[3], expected(t, rows=3 * 70), "all")


def trained(amsgrad=False):
    """A model of two layers after some steps, its optimizer, and the weights before the last step."""
    torch.manual_seed(3)
    model = torch.nn.Sequential(torch.nn.Linear(30, 70), torch.nn.Linear(70, 5))
    groups = [{"params": model[0].parameters(), "lr": 0.003, "amsgrad": amsgrad},
              {"params": model[1].parameters(), "lr": 0.02, "betas": (0.8, 0.95), "eps": 1e-6}]
    optimizer = torch.optim.AdamW(groups, weight_decay=0)
    for _ in range(4):
        before = {n: p.detach().clone() for n, p in model.named_parameters()}
        model(torch.randn(8, 30) * (torch.arange(30) != 7)).square().sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    return model, optimizer, before


def saved(folder, model, optimizer):
    weights, states = get_state_dict(model, optimizer)
    dist_cp.save({"model": weights, "optimizer": states}, checkpoint_id=folder, no_dist=True)
    return folder


def test_the_update_is_the_one_that_adam_made(command, tmp_path):
    """Of the last step: the difference that it made to the weights, which had no decay."""
    model, optimizer, before = trained()
    dead = optimizer.state[model[1].weight]
    with torch.no_grad():
        dead["exp_avg_sq"][2] = 1e-17  # below eps squared
    got = {(x["name"], x["state"]): x for x in measured(command, saved(tmp_path / "ckpt", model, optimizer))}
    for name, p in model.named_parameters():
        first, second = got[name, "exp_avg"], got[name, "exp_avg_sq"]
        state = optimizer.state[p]
        assert_measures(first, expected(state["exp_avg"]), name)
        assert_measures(second, expected(state["exp_avg_sq"], small=1e-16), name)
        assert first["lr"] == (0.003 if name.startswith("0.") else 0.02) and second["update_norm"] is None
        if name != "1.weight":
            made = (p.detach() - before[name]).double().norm().item()
            assert math.isclose(first["update_norm"], made, rel_tol=1e-3), name
    assert got["1.weight", "exp_avg_sq"]["small_rows"] == 1


def test_the_updates_of_another_rule_are_not_known(command, tmp_path):
    """amsgrad divides by another state, and only of one of the groups."""
    model, optimizer, _ = trained(amsgrad=True)
    folder = saved(tmp_path / "ckpt", model, optimizer)
    for x in measured(command, folder):
        known = x["state"] == "exp_avg" and x["name"].startswith("1.")
        assert (x["update_norm"] is not None) == (x["lr"] is not None) == known, x["name"]
    rows = {tuple(row[:2]): row for row in table(command, folder)}
    assert rows["0", "exp_avg"][-1] == "-" != rows["1", "exp_avg"][-1]


@pytest.mark.parametrize("name", ["run/checkpoint-2", "zero/z2_w3/global_step2", "zero/z3_w2/global_step2", "ranks/fsdp2"])
def test_every_tensor_of_a_sharded_checkpoint_is_measured_once(command, name):
    done = json.loads(command("show", GOLDEN / name, "--values", "--json", *OPTIONS, check=False).stdout)
    listed = [(t["name"], t["role"]) for t in done["tensors"]  # a weight that only its fp32 copy has is made of that
              if t.get("alias_of") in (None, t["name"])]
    assert sorted((x["name"], x["role"]) for x in done["values"]) == sorted(listed)
    assert not any(x["why"] for x in done["values"])
    assert all(x["lr"] is not None and x["update_norm"] is not None for x in done["values"] if x["role"] == "exp_avg")


def test_a_damaged_tensor_is_named_and_the_others_are_measured(command, tmp_path):
    run = shutil.copytree(GOLDEN / "run", tmp_path / "run")
    sound = {(x["name"], x["state"]): x for x in measured(command, run / "checkpoint-2")}
    (run / "checkpoint-2/optimizer_0/__1_0.distcp").unlink()
    got = {(x["name"], x["state"]): x for x in measured(command, run / "checkpoint-2")}
    assert set(got) == set(sound)
    for key, x in got.items():
        if key[1] in ("exp_avg", "exp_avg_sq"):
            assert "__1_0.distcp" in x["why"] and "norm" not in x
        elif key[1] is None:
            assert x == sound[key]


def table(command, folder):
    text = command("show", folder, "--values", *OPTIONS, check=False).stdout
    return [line.split() for line in text[text.index("\nvalues\n"):].splitlines()[3:]]


def test_the_table_adds_up(command, tmp_path):
    folder = tmp_path / "model"
    folder.mkdir()
    save_file({"a.0.w": torch.tensor([[3.0, 0.0], [0.0, 0.0]]), "a.0.b": torch.tensor([-4.0, math.nan]), "c": torch.ones(2)},
              folder / "model.safetensors")
    rows = table(command, folder)
    assert ["a.0", "weight", "2", "5", "4", "3", "1", "1", "of", "2", "-"] in rows
    assert ["(no", "layer)", "weight", "1", "1.414", "1", "0", "0", "-", "-"] in rows


def test_the_table_has_the_updates_as_parts_of_the_weights(command, tmp_path):
    model, optimizer, before = trained()
    rows = {tuple(row[:2]): row for row in table(command, saved(tmp_path / "ckpt", model, optimizer))}
    for layer in "01":
        now, then = (torch.cat([t[n].detach().double().flatten() for n in (f"{layer}.weight", f"{layer}.bias")])
                     for t in (dict(model.named_parameters()), before))
        made = ((now - then).norm() / now.norm()).item()
        assert math.isclose(float(rows[layer, "exp_avg"][-1]), made, rel_tol=6e-3)  # three digits
        assert {row[-1] for key, row in rows.items() if key[1] != "exp_avg"} == {"-"}


def test_the_tables_updates_are_compared_with_the_fp32_copies(command, tmp_path):
    """DeepSpeed's optimizer updates copies of the weights; here the weights are four times as large as these."""
    folder = shutil.copytree(GOLDEN / "zero/z2_w3", tmp_path / "run") / "global_step2"
    for path in folder.glob("mp_rank_*"):
        states = torch.load(path, weights_only=False)
        for name, t in states["module"].items():
            states["module"][name] = 4 * t
        torch.save(states, path)
    norms = {(x["name"], x["role"]): x for x in measured(command, folder)}
    updated = [name for name, role in norms if role == "exp_avg"]
    update = math.hypot(*(norms[n, "exp_avg"]["update_norm"] for n in updated))
    copies, weights = (math.hypot(*(norms[n, role]["norm"] for n in updated)) for role in ("master", "weight"))
    row, = (row for row in table(command, folder) if "exp_avg" in row)
    assert weights > 3 * copies and row[-1] == f"{update / copies:.3g}"


def test_memory_does_not_grow_with_the_model(tmp_path):
    """10 million elements (20 MB) and 100 million (200 MB)."""
    sides = [zeros(tmp_path / str(n), "BF16", n) for n in (10_000_000, 100_000_000)]
    for output in ([], ["--html", tmp_path / "page.html"]):
        peaks = [peak_bytes(UNSHARD, "show", side, "--values", *output, *OPTIONS) for side in sides]
        assert peaks[1] < 1.1 * peaks[0] and peaks[1] < 100e6, (output, peaks)


def test_a_run_is_refused(command):
    done = command("show", GOLDEN, "--values", "--html", "-", *OPTIONS, check=False)
    assert done.returncode == 2 and "is not a checkpoint: --values reads one" in done.stderr
