"""`unshard diff` against torch: every figure of random pairs, and checkpoints of different formats.

The figures of the reference are made here in float64 from exactly widened values and added up by math.fsum, which is
exact. The command's sums have a relative error below 1e-13 (lib/diff/figures.h); counts and the largest difference are
compared exactly."""

import json
import math
import random
import resource
import shutil
import struct
import subprocess
import sys

import pytest
import torch
import torch.distributed.checkpoint as dist_cp
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM, MixtralConfig

import trees
from conftest import LONGEST_S, ROOT, UNSHARD

GOLDEN = ROOT / "tests/golden"
SUM_ERROR = 1e-13
FLOATS = [torch.float64, torch.float32, torch.bfloat16, torch.float16, torch.float8_e4m3fn, torch.float8_e5m2]
INTEGERS = [torch.bool, torch.uint8, torch.int8, torch.int16, torch.uint16, torch.int32, torch.uint32, torch.int64,
            torch.uint64]
COMPLEX = [torch.complex64, torch.complex128]
FIGURES = ("max_abs", "mean_abs", "norm_a", "norm_b", "norm_difference")


def diff(a, b, *options, status=None):
    done = subprocess.run([UNSHARD, "diff", a, b, "--json", "-o", "store=none,settle=0", *map(str, options)],
                          capture_output=True, text=True, timeout=LONGEST_S)
    assert done.returncode in ((0, 1) if status is None else (status,)), done.stderr + done.stdout
    if done.returncode > 1:
        return done.stderr
    out = json.loads(done.stdout)
    assert out["equal"] == (done.returncode == 0)
    return out


def save(folder, tensors):
    """Complex numbers are no safetensors of all versions: those go into torch's file."""
    folder.mkdir(parents=True)
    if any(t.is_complex() for t in tensors.values()):
        torch.save(tensors, folder / "pytorch_model.bin")
    else:
        save_file(tensors, folder / "model.safetensors")
    return folder


# -- what torch says --

def values(t):
    """Exactly widened: Python's own numbers."""
    t = t.flatten()
    if t.dtype in FLOATS:
        return t.to(torch.float64).tolist()
    return [int(x) for x in t.tolist()] if t.dtype in INTEGERS else t.to(torch.complex128).tolist()


def finite(x):
    return isinstance(x, int) or (math.isfinite(x.real) and math.isfinite(x.imag))


def is_same(x, y):
    def same(p, q):
        return (p != p and q != q) or (p == q and (p != 0 or math.copysign(1, p) == math.copysign(1, q)))
    return same(x.real, y.real) and same(x.imag, y.imag)


def expected(a, b, absolute=0.0, relative=0.0):
    x, y = values(a), values(b)
    if a.dtype == b.dtype:
        size = a.element_size()
        p, q = (bytes(t.contiguous().flatten().view(torch.uint8).tolist()) if t.numel() else b"" for t in (a, b))
        changed = [p[i:i + size] != q[i:i + size] for i in range(0, len(p), size)]
    else:
        changed = [not is_same(*both) for both in zip(x, y)]
    pairs = [(p, q) for p, q in zip(x, y) if finite(p) and finite(q)]
    gaps = [float(abs(p - q)) for p, q in pairs]
    tolerant = absolute > 0 or relative > 0
    return {"elements": len(x), "changed": sum(changed),
            "beyond": sum(c and (not tolerant or not finite(p) or not finite(q) or
                                 float(abs(p - q)) > absolute + relative * float(abs(q)))
                          for c, p, q in zip(changed, x, y)),
            "not_finite_a": sum(not finite(p) for p in x), "not_finite_b": sum(not finite(q) for q in y),
            "not_finite_changed": sum(c and not (finite(p) and finite(q)) for c, p, q in zip(changed, x, y)),
            "max_abs": max(gaps, default=0.0), "mean_abs": math.fsum(gaps) / len(gaps) if gaps else 0.0,
            "norm_a": math.sqrt(math.fsum(float(abs(p)) ** 2 for p in x if finite(p))),
            "norm_b": math.sqrt(math.fsum(float(abs(q)) ** 2 for q in y if finite(q))),
            "norm_difference": math.sqrt(math.fsum(g * g for g in gaps))}


def assert_figures(got, want, what):
    for name, value in want.items():
        if name not in FIGURES:
            assert got[name] == value, (what, name)
        elif name == "max_abs" and "complex" not in what:
            assert got[name] == value, (what, name)
        else:
            assert math.isclose(got[name], value, rel_tol=2 * SUM_ERROR, abs_tol=0), (what, name, got[name], value)


def figures_of(x):
    return {name: x[name] for name in expected(torch.zeros(0), torch.zeros(0))}


# -- random pairs --

def drawn(rng, dtype, shape):
    n = math.prod(shape)
    if dtype == torch.bool:
        return torch.tensor([rng.random() < 0.5 for _ in range(n)], dtype=dtype).reshape(shape)
    if dtype in INTEGERS:
        raw = rng.randbytes(n * dtype.itemsize)
        return torch.frombuffer(bytearray(raw), dtype=dtype).reshape(shape) if n else torch.zeros(shape, dtype=dtype)
    scale = 2.0 ** rng.randint(-12, 6)
    real = torch.tensor([rng.gauss(0, scale) for _ in range(n)], dtype=torch.float64)
    if dtype in COMPLEX:
        return torch.complex(real, real.flip(0) * 0.3).to(dtype).reshape(shape)
    for _ in range(rng.choice((0, 0, 3)) if n else 0):
        real[rng.randrange(n)] = rng.choice((math.nan, math.inf, -math.inf, 0.0, -0.0))
    return real.to(dtype).reshape(shape)


def altered(rng, t):
    """Some elements are another tensor's; now and then none, or all."""
    out, other = t.clone().flatten(), drawn(rng, t.dtype, t.shape).flatten()
    share = rng.choice((0, 0.001, 0.3, 1))
    pick = torch.tensor([rng.random() < share for _ in range(out.numel())], dtype=torch.bool)
    # By bits: what torch cannot index (some dtypes) it can still copy.
    size = t.element_size()
    if out.numel():
        bits = out.view(torch.uint8).reshape(-1, size)
        bits[pick] = other.view(torch.uint8).reshape(-1, size)[pick]
    return out.reshape(t.shape)


SHAPES = [(), (0,), (1,), (7,), (3, 5), (2048,), (2049,), (40, 51), (65536,), (65537,), (3, 30000)]


@pytest.mark.parametrize("seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(2, 6))])
def test_figures_are_torchs(tmp_path, seed):
    rng = random.Random(seed)
    kinds = FLOATS + INTEGERS + (COMPLEX if seed % 3 == 0 else [])
    a, b = {}, {}
    for dtype in kinds:
        for _ in range(3):
            shape = rng.choice(SHAPES[:8] if dtype.itemsize == 8 and dtype not in FLOATS else SHAPES)
            name = f"{dtype}.{len(a)}"
            a[name] = drawn(rng, dtype, shape)
            b[name] = altered(rng, a[name])
    for _ in range(12):
        one, other = rng.choice(FLOATS), rng.choice(kinds)
        shape = rng.choice(SHAPES[:8])
        name = f"{one} {other}.{len(a)}"
        a[name] = drawn(rng, one, shape)
        b[name] = drawn(rng, other, shape) if rng.random() < 0.5 or other in INTEGERS else a[name].to(other)
    a["absent"], b["new"] = torch.ones(2), torch.ones(2)
    a["shape"], b["shape"] = torch.ones(2, 3), torch.ones(3, 2)
    absolute, relative = rng.choice(((0, 0), (0.01, 0), (0, 0.02), (0.001, 0.1)))
    out = diff(save(tmp_path / "a", a), save(tmp_path / "b", b), "--all", "--tolerance", f"{absolute},{relative}")
    got = {t["name"]: t for t in out["tensors"]}
    assert sorted(got) == sorted({*a, *b}) and not out["equal"]
    counts = dict.fromkeys(out["counts"], 0)
    for name in sorted(a.keys() & b.keys() - {"shape"}):
        want = expected(a[name], b[name], absolute, relative)
        assert_figures(got[name], want, name)
        kind = ("values" if want["beyond"] else "within" if want["changed"] else
                "equal" if a[name].dtype == b[name].dtype else "dtype")
        counts[kind] += 1
        assert got[name]["kind"] == kind, name
        assert got[name]["dtype_a"] == str(a[name].dtype)[6:] and got[name]["shape_b"] == list(b[name].shape)
    assert [got[n]["kind"] for n in ("absent", "new", "shape")] == ["only_a", "only_b", "shape"]
    assert out["counts"] == {**counts, "only_a": 1, "only_b": 1, "shape": 1}


def test_sums_of_many_elements(tmp_path):
    """Several blocks: as torch's own sums in float64, and the same on one processor as on all."""
    torch.manual_seed(1)
    a = {"model.layers.0.w": torch.randn(1000, 3001, dtype=torch.float32)}
    b = {"model.layers.0.w": a["model.layers.0.w"] + torch.randn(1000, 3001) * 1e-4}
    save(tmp_path / "a", a)
    save(tmp_path / "b", b)
    out = diff(tmp_path / "a", tmp_path / "b")
    x, y = (t["model.layers.0.w"].to(torch.float64) for t in (a, b))
    gap = (x - y).abs()
    want = {"max_abs": gap.max(), "mean_abs": gap.mean(), "norm_a": x.norm(), "norm_b": y.norm(),
            "norm_difference": gap.norm()}
    for name, value in want.items():
        assert math.isclose(out["tensors"][0][name], float(value), rel_tol=1e-12), name
        assert out["layers"][0][name] == out["total"][name] == out["tensors"][0][name]
    assert out["tensors"][0]["changed"] == int((x != y).sum())
    one = subprocess.run(["taskset", "-c", "0", UNSHARD, "diff", tmp_path / "a", tmp_path / "b", "--json",
                          "-o", "store=none"], capture_output=True, text=True, timeout=LONGEST_S)
    assert json.loads(one.stdout) == out


def test_layers_and_experts(tmp_path):
    """Experts of their own, and all in one tensor."""
    torch.manual_seed(2)
    a = {f"model.layers.{layer}.mlp.experts.{e}.up.weight": torch.randn(3, 4) for layer in (0, 1) for e in range(3)}
    a |= {f"model.layers.{layer}.norm.weight": torch.randn(4) for layer in (0, 1)}
    a |= {"model.layers.2.mlp.experts.gate_up_proj": torch.randn(3, 5, 4), "model.embed.weight": torch.randn(7, 4)}
    b = {name: t.clone() for name, t in a.items()}
    b["model.layers.1.mlp.experts.2.up.weight"][1, 1] += 1
    b["model.layers.2.mlp.experts.gate_up_proj"][1] += 0.5
    out = diff(save(tmp_path / "a", a), save(tmp_path / "b", b), "--all")

    def joined(names):
        return [torch.cat([side[n].flatten() for n in names]) for side in (a, b)]

    layers = {f"model.layers.{i}": [n for n in a if n.startswith(f"model.layers.{i}.")] for i in (0, 1, 2)}
    assert [g["name"] for g in out["layers"]] and sorted(g["name"] for g in out["layers"]) == sorted(layers)
    for g in out["layers"]:
        assert_figures(figures_of(g), expected(*joined(layers[g["name"]])), g["name"])
        assert g["tensors"] == len(layers[g["name"]])
    experts = {f"model.layers.{i}.mlp.experts.{e}": [f"model.layers.{i}.mlp.experts.{e}.up.weight"] for i in (0, 1)
               for e in range(3)}
    fused = "model.layers.2.mlp.experts"
    assert sorted(g["name"] for g in out["experts"]) == sorted([*experts, *(f"{fused}.{e}" for e in range(3))])
    for g in out["experts"]:
        want = (joined(experts[g["name"]]) if g["name"] in experts else
                [side[f"{fused}.gate_up_proj"][int(g["name"][-1])] for side in (a, b)])
        assert_figures(figures_of(g), expected(*want), g["name"])
    assert [g["name"] for g in out["experts"] if g["different"]] == ["model.layers.1.mlp.experts.2", f"{fused}.1"]
    assert_figures(figures_of(out["total"]), expected(*joined(a)), "total")


# -- formats --

def test_a_sharded_checkpoint_and_its_exports(tmp_path, command):
    source = GOLDEN / "run/checkpoint-2"
    for view in ("weights", "dcp", "full"):  # of these dcp has no config.json, and a tensor that config.json ties
        command("export", source, tmp_path / view, "--view", view, "-o", "store=none")
        for a, b in ((source, tmp_path / view), (tmp_path / view, source)):
            out = diff(a, b, "--no-config", status=0)
            assert out["counts"]["equal"] == 11 and out["tensors"] == []
            assert (out["note"] is not None) == (view == "dcp")
    command("export", source, tmp_path / "bf16", "--view", "weights-fp32", "-o", "store=none")
    assert diff(source, tmp_path / "bf16", "--view", "weights-fp32", "--no-config", status=0)["counts"]["equal"] == 11
    assert diff(source, tmp_path / "bf16", "--no-config", status=1)["counts"]["equal"] == 0


def test_names_are_the_published_ones(tmp_path):
    """A DCP of the modules' names, where transformers holds all experts in one tensor, and the saved model."""
    torch.manual_seed(0)
    config = MixtralConfig(vocab_size=64, hidden_size=16, intermediate_size=24, num_hidden_layers=2,
                           num_attention_heads=4, num_key_value_heads=2, num_local_experts=4)
    model = AutoModelForCausalLM.from_config(config)
    model.save_pretrained(tmp_path / "hf")
    dist_cp.save({"model": model.state_dict()}, checkpoint_id=tmp_path / "run/ckpt", no_dist=True)
    config.save_pretrained(tmp_path / "run/ckpt")
    held, published = sorted(model.state_dict()), sorted(trees.weights(tmp_path / "hf"))
    out = diff(tmp_path / "run/ckpt", tmp_path / "hf", "--all", "--no-config", status=0)
    assert sorted(t["name"] for t in out["tensors"]) == published
    assert len(out["layers"]) == 2
    if held != published:
        assert len(out["experts"]) == 8
    with torch.no_grad():
        model.model.layers[1].post_attention_layernorm.weight[3] = 7
    model.save_pretrained(tmp_path / "hf2")
    out = diff(tmp_path / "run/ckpt", tmp_path / "hf2", "--no-config", status=1)
    assert [t["name"] for t in out["tensors"]] == ["model.layers.1.post_attention_layernorm.weight"]
    assert out["tensors"][0]["changed"] == 1 and out["tensors"][0]["max_abs"] == 6


def test_tied_weights(tmp_path):
    """What config.json ties need not be on both sides; if the bytes differ, it is a tensor of its own."""
    embed = torch.randn(6, 4)
    both = {"model.embed_tokens.weight": embed, "lm_head.weight": embed.clone()}
    for name, tensors in (("one", {"model.embed_tokens.weight": embed}), ("both", both),
                          ("other", both | {"lm_head.weight": embed + 1})):
        save(tmp_path / name, tensors)
        config = {"model_type": "llama", "tie_word_embeddings": True, "vocab_size": 6, "hidden_size": 4}
        (tmp_path / name / "config.json").write_text(json.dumps(config))
    for a, b in (("one", "both"), ("both", "one")):
        out = diff(tmp_path / a, tmp_path / b, status=0)
        assert [(t["name"], t["kind"]) for t in out["tensors"]] == [("lm_head.weight", "tied")]
    out = diff(tmp_path / "one", tmp_path / "other", status=1)
    assert [(t["name"], t["kind"]) for t in out["tensors"]] == [("lm_head.weight", "only_b")]


def test_optimizer_states(tmp_path):
    zero = GOLDEN / "zero/z3_w2"
    out = diff(zero / "global_step2", zero / "global_step2_universal", "--optimizer", "--all", status=0)
    assert {t["state"] for t in out["tensors"]} >= {None, "master", "exp_avg", "exp_avg_sq"}
    # The weights of these two are those of other trainings, and so are the states.
    out = diff(zero / "global_step2", GOLDEN / "zero/z2_w3/global_step2", "--optimizer", status=1)
    assert {t["state"] for t in out["tensors"] if t["kind"] == "values"} >= {"exp_avg"}
    assert [v["name"] for v in out["values"] if not v["counts"]] == ["world_size"]


def test_hyper_parameters_and_config(tmp_path, command):
    source = GOLDEN / "run/checkpoint-2"
    for name in ("a", "b"):
        command("export", source, tmp_path / name, "-o", "store=none")
    config = json.loads((tmp_path / "b/config.json").read_text())
    config["rms_norm_eps"], config["rope"] = 3e-5, {"base": [1, 2.0, "x"]}
    (tmp_path / "b/config.json").write_text(json.dumps(config))
    out = diff(tmp_path / "a", tmp_path / "b", status=1)
    was = json.loads((tmp_path / "a/config.json").read_text())["rms_norm_eps"]
    assert {v["name"]: (v["a"], v["b"]) for v in out["values"] if v["counts"]} == {
        "config.rms_norm_eps": (was, 3e-5), "config.rope.base.0": (None, 1), "config.rope.base.1": (None, 2),
        "config.rope.base.2": (None, "x")}
    assert diff(tmp_path / "a", tmp_path / "b", "--no-config", status=0)["values"] == []
    # A model has no hyper-parameters: that is said, and is no difference.
    out = diff(source, tmp_path / "a", status=0)
    assert {v["name"] for v in out["values"]} == {"hyper-parameters", "format"}
    assert not any(v["counts"] for v in out["values"])


@pytest.fixture(name="package")
def _package(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "python"))
    monkeypatch.setenv("UNSHARD_LIBRARY", str(UNSHARD.parent.parent / "lib/libunshard.so.0"))
    import unshard
    return unshard


def test_python_returns_what_the_command_prints(tmp_path, package, command):
    torch.manual_seed(4)
    a = {f"model.layers.{i}.mlp.experts.{e}.w": torch.randn(5, 3) for i in range(2) for e in range(2)}
    b = {name: t.to(torch.bfloat16) if "0.mlp" in name else t + 1 for name, t in a.items()} | {"new": torch.ones(3)}
    a["nan"], b["nan"] = torch.tensor([1, math.nan]), torch.tensor([math.inf, math.nan])
    sides = save(tmp_path / "a", a), save(tmp_path / "b", b)
    (tmp_path / "a/config.json").write_text('{"x": [1, null]}')
    (tmp_path / "b/config.json").write_text('{"x": [2], "y": "\u00e9"}')
    printed = diff(*sides, "--all", "--tolerance", "0.1,0.01")
    found = package.diff(*sides, tolerance=0.1, relative_tolerance=0.01)
    assert not found.equal and found.read_bytes == printed["read_bytes"] and found.note == printed["note"]

    def same(x, figures, **fields):
        want = {name: value for name, value in x.items() if name not in fields}
        assert {name: x[name] for name in fields} == fields
        assert want == ({} if figures is None else vars(figures))

    for x, t in zip(printed["tensors"], found.tensors, strict=True):
        same(x, t.figures, name=t.name, state=t.state, kind=t.kind, dtype_a=t.dtype_a, dtype_b=t.dtype_b,
             shape_a=t.shape_a and list(t.shape_a), shape_b=t.shape_b and list(t.shape_b))
    for section in ("layers", "experts"):
        for x, g in zip(printed[section], getattr(found, section), strict=True):
            same(x, g.figures, name=g.name, tensors=g.tensors, different=g.different)
    same(printed["total"], found.total.figures, tensors=found.total.tensors, different=found.total.different)
    assert printed["values"] == [vars(v) for v in found.values] and len(found.values) == 3
    assert package.diff(*sides, config=False).values == []
    assert package.diff(sides[0], sides[0]).equal
    with pytest.raises(FileNotFoundError):
        package.diff(sides[0], tmp_path / "absent")
    with pytest.raises(ZeroDivisionError):
        package.diff(*sides, progress=lambda p: 1 / 0)


def test_newest_of_a_run(tmp_path, package, command):
    run = tmp_path / "run"
    run.mkdir()
    command("export", GOLDEN / "run/checkpoint-2", run / "checkpoint-1", "-o", "store=none")
    (run / "checkpoint-1/trainer_state.json").write_text('{"global_step": 1}')
    shutil.copytree(run / "checkpoint-1", run / "checkpoint-20")
    (run / "checkpoint-20/config.json").write_text("{}")
    out = diff(run / "latest", run / "checkpoint-20", status=0)
    assert out["counts"]["equal"] > 0
    assert diff(run / "checkpoint-1", run / "latest")["values"]
    assert package.diff(run / "latest", run / "checkpoint-20").equal
    (tmp_path / "none").mkdir()
    assert command("diff", tmp_path / "none/latest", run, check=False).returncode == 2


def test_a_path_of_a_mount(tmp_path, mount):
    """Any view, as the directories that it shows."""
    mnt = mount(GOLDEN / "run")
    for view in ("weights", "full", "dcp"):
        out = diff(GOLDEN / "run/checkpoint-2", mnt / view / "checkpoint-2", "--no-config", status=0)
        assert out["counts"]["equal"] == 11, view


# -- the command --

def test_text(tmp_path, command):
    a = save(tmp_path / "a", {f"model.layers.{i}.w": torch.ones(4) * i for i in range(30)})
    b = save(tmp_path / "b", {f"model.layers.{i}.w": torch.ones(4) * (i + (i == 7) / 4) for i in range(31)})
    done = command("diff", a, b, "-o", "store=none,settle=0", check=False)
    assert done.returncode == 1 and done.stderr == ""
    assert "model.layers.7.w   float32  [4]    all        0.25" in done.stdout
    assert "model.layers.30.w  float32  [4]    only in B" in done.stdout
    assert "\ndifferent: 31 tensors, of them 29 equal, 1 with other values, 1 only in B; 960 B read\n" in done.stdout
    assert "model.layers.8" not in done.stdout
    same = command("diff", a, a, "-o", "store=none,settle=0")
    assert same.stdout == "equal: 30 tensors; 960 B read\n"
    assert command("diff", a, a, "--all", "-o", "store=none,settle=0").stdout.count("\nmodel.layers.") == 60


def test_errors(tmp_path, command):
    a = save(tmp_path / "a", {"w": torch.ones(4)})
    (tmp_path / "empty").mkdir()
    for arguments, said in (((a, tmp_path / "absent"), "No such file"), ((a, tmp_path / "empty"), "not a checkpoint"),
                            ((a, a, "--view", "weight"), "no such view"), ((a, a, "--tolerance", "-1"), "--tolerance"),
                            ((a, a, "--tolerance", "nan"), "--tolerance"), ((a,), "usage"),
                            ((a, a, "--tolerance", "inf"), "--tolerance"), ((a, a, "--tolerance", "1,"), "--tolerance"),
                            ((a, a, "--tolerance", "0,inf"), "--tolerance"),
                            ((a, GOLDEN / "run"), f"unshard ls {GOLDEN / 'run'}"),
                            ((a, GOLDEN / "torchfile/legacy.pt"), "torch before 1.6")):
        done = command("diff", *arguments, "-o", "store=none,settle=0", check=False)
        assert done.returncode == 2 and said in done.stderr, (arguments, done.stderr)


@pytest.mark.parametrize("damaged", [0, 1])
@pytest.mark.parametrize("json_flag", [(), ("--json",)])
def test_damage_is_said_once_with_its_side(tmp_path, command, damaged, json_flag):
    sides = [save(tmp_path / name, {"w": torch.ones(4)}) for name in "ab"]
    with open(sides[damaged] / "model.safetensors", "r+b") as f:
        f.truncate(f.seek(0, 2) - 4)
    done = command("diff", *sides, *json_flag, "-o", "store=none,settle=0", check=False)
    assert (done.returncode, done.stdout) == (2, "")
    [line] = done.stderr.splitlines()
    assert line.startswith(f"unshard: {sides[damaged]}") and "truncated" in line


def test_values_that_are_not_numbers(tmp_path, command):
    """NaN equals NaN by its bits, and no tolerance covers it."""
    a = save(tmp_path / "a", {"w": torch.tensor([1.0, float("nan")])})
    b = save(tmp_path / "b", {"w": torch.tensor([1.0, float("inf")])})
    for sides, status in (((a, a), 0), ((a, b), 1)):
        done = command("diff", *sides, "--json", "--tolerance", "1e300", "-o", "store=none,settle=0", check=False)
        assert done.returncode == status and json.loads(done.stdout)["equal"] is (status == 0)


def test_a_name_with_control_characters(tmp_path, command):
    a, b = (save(tmp_path / n, {"w\x1b[31m": torch.full((2,), x)}) for n, x in (("a", 1.0), ("b", 2.0)))
    done = command("diff", a, b, "-o", "store=none,settle=0", check=False)
    assert done.returncode == 1 and "\x1b" not in done.stdout


def test_a_checkpoint_that_is_being_saved(tmp_path, command):
    """No index yet: nothing is judged, exit status 3."""
    a = save(tmp_path / "a", {"w": torch.ones(4)})
    b = tmp_path / "checkpoint-4"
    b.mkdir()
    save_file({"w": torch.ones(4)}, b / "model-00001-of-00002.safetensors")
    done = command("diff", a, b, "-o", "store=none", check=False)
    assert done.returncode == 3 and "still be being saved" in done.stderr
    assert command("diff", a, b, "-o", "store=none,settle=0", check=False).returncode == 2


def zeros(folder, dtype, n):
    """One tensor of n zeros, a hole."""
    folder.mkdir()
    size = {"BF16": 2, "F32": 4}[dtype] * n
    header = json.dumps({"model.w": {"dtype": dtype, "shape": [n], "data_offsets": [0, size]}}).encode()
    with open(folder / "model.safetensors", "wb") as file:
        file.write(struct.pack("<Q", len(header)) + header)
        file.truncate(8 + len(header) + size)
    return folder


def peak_bytes(*arguments, status=0):
    done = subprocess.run([sys.executable, "-c", """
import resource, subprocess, sys
done = subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL)
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
sys.exit(done.returncode)""", *map(str, arguments)], capture_output=True, text=True, timeout=LONGEST_S)
    assert done.returncode == status, done.stderr
    return int(done.stdout) * (1 if sys.platform == "darwin" else 1024)


def test_memory_does_not_grow_with_the_model(tmp_path):
    """20 million elements (120 MB of both sides) and 200 million (1.2 GB)."""
    peaks = []
    for n in (20_000_000, 200_000_000):
        sides = [zeros(tmp_path / f"{dtype}-{n}", dtype, n) for dtype in ("BF16", "F32")]
        peaks.append(peak_bytes(UNSHARD, "diff", *sides, "-o", "store=none,settle=0", status=1))
    assert peaks[1] < 1.1 * peaks[0] and peaks[1] < 100e6, peaks
