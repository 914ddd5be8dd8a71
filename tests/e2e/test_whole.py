"""Is a model whole? Models of real families, written by save_pretrained: whole, and with something taken away; and
against the base model that they were made from."""

import json
import os
import random
import re
import shutil
import subprocess
import sys
import time

import pytest
import torch
from safetensors.torch import load_file, save_file

import trees
from conftest import LONGEST_S, MAKE, ROOT, UNSHARD

sys.path[:0] = [str(ROOT / "tests/names"), str(MAKE)]
import families  # noqa: E402
import models  # noqa: E402

LAYER = re.compile(r"^(.*\.layers)\.(\d+)\.")


@pytest.fixture
def saved(tmp_path):
    def make(family, at="model", **more):
        name, cls, config, arguments = family
        torch.manual_seed(1)
        model = families.build((name, cls, config, arguments | more))
        model.save_pretrained(tmp_path / at)
        return tmp_path / at
    return make


def edit(model, change):
    tensors = load_file(model / "model.safetensors")
    change(tensors)
    save_file(tensors, model / "model.safetensors", {"format": "pt"})


def check(command, model, *args):
    done = command("check", model, "-o", "settle=0", "--json", *args, check=False)
    found = json.loads(done.stdout)["findings"]
    assert done.returncode == any(f["severity"] == "problem" for f in found)
    return found


def ids(found):
    return [f["id"] for f in found if f["check"] in ("whole", "base")]


@pytest.mark.parametrize("family", families.FAMILIES, ids=lambda f: f[0])
def test_what_save_pretrained_writes_is_whole(command, saved, family):
    model = saved(family)
    assert check(command, model) == []
    assert check(command, model, "--base", model, "--deep")[0]["id"] == "base_values_equal"


LLAMA = next(f for f in families.FAMILIES if f[0] == "llama")
DEEPSEEK = next(f for f in families.FAMILIES if f[0] == "deepseek_v3")


@pytest.mark.parametrize("family", [LLAMA, DEEPSEEK], ids=lambda f: f[0])
@pytest.mark.parametrize("seed", range(10))
def test_what_is_taken_away_is_found(command, saved, family, seed):
    """A tensor of a layer, a layer, or what is before and behind the layers."""
    model = saved(family, num_hidden_layers=8)
    name = random.Random(seed).choice(sorted(load_file(model / "model.safetensors")))
    edit(model, lambda t: t.pop(name))
    found = check(command, model)
    assert len(found) == 1 and found[0]["tensor"] == name, (name, found)
    assert found[0]["id"] in ("layer_lacks_tensors", "model_part_missing")


def test_a_layer_that_is_gone(command, saved):
    model = saved(LLAMA, num_hidden_layers=8)
    edit(model, lambda t: [t.pop(n) for n in list(t) if ".layers.3." in n])
    assert ids(check(command, model)) == ["layers_missing"]


def test_a_tensor_of_another_shape(command, saved):
    model = saved(LLAMA, num_hidden_layers=8)

    def cut(t):
        t["model.layers.5.mlp.up_proj.weight"] = t["model.layers.5.mlp.up_proj.weight"][:-1].clone()
    edit(model, cut)
    found = check(command, model)
    assert ids(found) == ["shape_unlike_siblings"] and found[0]["tensor"] == "model.layers.5.mlp.up_proj.weight"


def test_against_the_base(command, saved):
    """What every layer lacks, and what has another shape everywhere, only a base model shows."""
    base, model = saved(LLAMA, "base"), saved(LLAMA)

    def change(t):
        for name in list(t):
            if name.endswith("mlp.up_proj.weight"):
                del t[name]
            elif name.endswith("q_proj.weight"):
                t[name] = t[name][:-2].clone()
            elif name.endswith("k_proj.weight"):
                t[name] = t[name].bfloat16()
        t["model.further.weight"] = torch.zeros(3)
    edit(model, change)
    found = check(command, model, "--base", base)
    assert ids(found) == ["base_tensors_missing", "base_shapes_differ", "base_lacks_tensors", "base_dtypes_differ"]
    [missing] = [f for f in found if f["id"] == "base_tensors_missing"]
    assert "2 tensors" in missing["text"] and "model.layers.0.mlp.up_proj.weight" in missing["text"]


def test_layers_of_multi_token_prediction(command, saved):
    base, model = saved(LLAMA, "base"), saved(LLAMA)
    edit(base, lambda t: t.update({"mtp.fc.weight": torch.ones(2, 2), "model.layers.2.eh_proj.weight": torch.ones(2, 2)}))
    config = json.loads((base / "config.json").read_text())
    (base / "config.json").write_text(json.dumps(config | {"num_nextn_predict_layers": 1}))
    assert ids(check(command, model, "--base", base)) == ["base_mtp_missing"]


def test_experts_that_were_not_merged(command, saved):
    """unsloth#5410: the adapter of the experts was left out, and the export was called a success."""
    base, model = saved(DEEPSEEK, "base"), saved(DEEPSEEK)

    def train(t):
        for name in t:
            if ".experts." not in name and t[name].is_floating_point():
                t[name] = t[name] + 1
    edit(model, train)
    assert ids(check(command, model, "--base", base)) == []  # names alone
    found = check(command, model, "--base", base, "--deep")
    n = sum(".experts." in name for name in load_file(model / "model.safetensors"))
    assert ids(found) == ["base_values_equal"]
    assert found[0]["text"].startswith(f"{n} of ") and "model.layers.*.mlp.experts.*.up_proj.weight" in found[0]["text"]


MIXTRAL = next(f for f in families.FAMILIES if f[0] == "mixtral")


@pytest.mark.parametrize("stacked", ["model", "base"])
def test_experts_that_are_one_tensor_are_those_of_their_own_names(command, tmp_path, stacked):
    """As transformers has them in memory and other programs save them, against a model that was published; and the
    reverse."""
    torch.manual_seed(1)
    model = families.build(MIXTRAL)
    at = {name: tmp_path / name for name in ("base", "model")}
    model.save_pretrained(at["base"], save_original_format=stacked != "base")
    with torch.no_grad():
        for name, p in model.named_parameters():
            if ".experts." not in name:
                p += 1
    model.save_pretrained(at["model"], save_original_format=stacked != "model")
    names = {which: load_file(folder / "model.safetensors") for which, folder in at.items()}
    assert any(n.endswith("experts.down_proj") for n in names[stacked])
    own = [n for n in names["base" if stacked == "model" else "model"] if ".experts." in n]
    assert ids(check(command, at["model"], "--base", at["base"])) == []
    [found] = [f for f in check(command, at["model"], "--base", at["base"], "--deep") if f["check"] == "base"]
    assert found["id"] == "base_values_equal" and found["text"].startswith(f"{len(own)} of ")
    assert "experts.*.w2.weight" in found["text"]


def test_numbered_optimizers_and_stacked_experts_show_what_they_trained(command, made):
    """A plain Trainer's optimizer has numbers in place of names, and a model's experts other names than it saves."""
    run = made("u0", "plain") / "run/checkpoint-4"
    [found] = [f for f in check(command, run, "--base", run, "--deep") if f["id"] == "trained_equals_base"]
    matrices = [n for n, t in load_file(run / "model.safetensors").items() if t.ndim > 1]
    assert found["text"].startswith(f"{len(matrices)} tensors of ")
    moe = made("t2", "mixtral-f2-fp32") / "run/checkpoint-2"
    [found] = [f for f in check(command, moe, "--base", moe, "--deep") if f["id"] == "trained_equals_base"]
    assert "experts.0.w2.weight" in found["text"]


PEAK = """
import resource, subprocess, sys
done = subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL)
print(done.returncode, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)"""


def write_tensors(folder, names, elements):
    """Zeros, as a hole: no time is spent on writing them."""
    folder.mkdir()
    size = 4 * elements
    header = json.dumps({n: {"dtype": "F32", "shape": [elements], "data_offsets": [i * size, i * size + size]}
                         for i, n in enumerate(names)}).encode()
    with open(folder / "model.safetensors", "wb") as f:
        f.write(len(header).to_bytes(8, "little") + header)
        f.truncate(8 + len(header) + size * len(names))
    (folder / "config.json").write_text("{}")


def test_sixty_thousand_names_take_a_moment(command, tmp_path):
    """A second or so here; the bound is for machines that are slower, and busy."""
    names = [f"model.layers.{i}.mlp.experts.{e}.{p}_proj.weight" for i in range(50) for e in range(400)
             for p in ("gate", "up", "down")]
    write_tensors(tmp_path / "base", names, 1)
    write_tensors(tmp_path / "model", names[:-1], 1)
    begin = time.process_time() + sum(os.times()[2:4])
    found = check(command, tmp_path / "model", "--base", tmp_path / "base", "-o", "store=none")
    assert "base_tensors_missing" in ids(found)
    took = time.process_time() + sum(os.times()[2:4]) - begin
    assert took < 10, f"{took:.1f} s of processor time"


def test_memory_of_a_comparison_is_flat(tmp_path):
    names = [f"model.layers.{i}.mlp.up_proj.weight" for i in range(16)]
    peaks = []
    for elements in (1 << 19, 1 << 23):  # 32 MiB and 512 MiB
        folder = tmp_path / str(elements)
        folder.mkdir()
        for side in ("base", "model"):
            write_tensors(folder / side, names, elements)
        done = subprocess.run([sys.executable, "-c", PEAK, UNSHARD, "check", folder / "model", "--base", folder / "base",
                               "--deep", "-o", "settle=0,store=none"], capture_output=True, text=True, timeout=LONGEST_S)
        status, peak_kib = done.stdout.split()
        assert int(status) < 2, done.stderr
        peaks.append(int(peak_kib) / 1024)
    assert peaks[1] < peaks[0] + 24, peaks


def test_a_base_in_the_cache(command, saved, tmp_path, monkeypatch):
    """As huggingface_hub lays it out: files of a snapshot are links to blobs."""
    base, model = saved(LLAMA, "base"), saved(LLAMA)
    repo = tmp_path / "hub/models--org--name"
    (repo / "snapshots/abc").mkdir(parents=True)
    (repo / "refs").mkdir()
    (repo / "blobs").mkdir()
    (repo / "refs/main").write_text("abc")
    for i, file in enumerate(sorted(base.iterdir())):
        shutil.copy(file, repo / f"blobs/{i}")
        (repo / "snapshots/abc" / file.name).symlink_to(f"../../blobs/{i}")
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    edit(model, lambda t: t.pop("model.norm.weight"))
    for name in ("org/name", repo / "snapshots/abc"):
        assert ids(check(command, model, "--base", name)) == ["model_part_missing", "base_tensors_missing"]
    done = command("check", model, "--base", "org/other", check=False)
    assert done.returncode == 2 and "org/other" in done.stderr


def test_weights_that_the_optimizer_trained(command, made, tmp_path):
    """The checkpoint as its own base: all that it has optimizer states of is equal, as if nothing was trained."""
    run = made("u2", "full") / "run/checkpoint-4"
    found = check(command, run, "--base", run, "--deep")
    assert ids(found) == ["trained_equals_base", "base_values_equal"]


def split(folder):
    """A model in several files, and its index."""
    models.even_llama(torch.float32).save_pretrained(folder, max_shard_size="30KB")
    return folder, folder / "model.safetensors.index.json"


def of_index(command, folder, status):
    done = command("check", folder, "--json", "-o", "settle=0,store=none", check=False)
    assert done.returncode == status, done.stdout
    return [(f["id"], f["severity"], f["tensor"]) for f in json.loads(done.stdout)["findings"]]


def test_an_index_and_its_files_both_ways(command, tmp_path):
    folder, index = split(tmp_path / "model")
    whole = json.loads(index.read_text())
    names, files = sorted(whole["weight_map"]), sorted(set(whole["weight_map"].values()))
    name, file = names[3], whole["weight_map"][names[3]]
    other = next(f for f in files if f != file)

    def write(**changes):
        index.write_text(json.dumps(whole | {"weight_map": whole["weight_map"] | changes}))

    assert of_index(command, folder, 0) == []
    write(ghost=file)
    assert of_index(command, folder, 1) == [("index_names_absent_tensor", "problem", "ghost")]
    write(**{name: other})
    assert of_index(command, folder, 1) == [("index_names_other_file", "problem", name)]
    index.write_text(json.dumps(whole | {"weight_map": {n: f for n, f in whole["weight_map"].items() if n != name}}))
    assert of_index(command, folder, 1) == [("index_omits_tensor", "problem", name)]
    index.write_text(json.dumps(whole | {"metadata": {"total_size": whole["metadata"]["total_size"] + 1}}))
    assert of_index(command, folder, 0) == [("index_size_differs", "note", None)]
    write()
    save_file({"stale": torch.zeros(3)}, folder / "model-00009-of-00009.safetensors")
    assert of_index(command, folder, 0) == [("index_omits_file", "note", None)]


def test_an_export_has_an_index_that_fits(command, tmp_path):
    folder, index = split(tmp_path / "model")
    whole = json.loads(index.read_text())
    index.write_text(json.dumps(whole | {"weight_map": dict(list(whole["weight_map"].items())[1:])}))
    command("export", folder, tmp_path / "out", "-o", "settle=0,store=none,max_shard_size=30KB")
    assert of_index(command, tmp_path / "out", 0) == []
    trees.assert_same(load_all(tmp_path / "out"), load_all(folder))


def load_all(folder):
    return {n: t for f in folder.glob("*.safetensors") for n, t in load_file(f).items()}


def test_an_export_of_a_model_that_is_not_whole(command, tmp_path):
    """By config.json; and by a base model, which alone shows what all layers lack."""
    models.even_llama(torch.float32).save_pretrained(tmp_path / "base")
    tensors = load_file(tmp_path / "base/model.safetensors")

    def left(name, keep):
        shutil.copytree(tmp_path / "base", tmp_path / "runs" / name)
        save_file({n: t for n, t in tensors.items() if keep(n)}, tmp_path / "runs" / name / "model.safetensors", {"format": "pt"})
        return tmp_path / "runs" / name

    def export(source, *args):
        out = tmp_path / "out"
        shutil.rmtree(out, ignore_errors=True)
        done = command("export", source, out, "--json", "-o", "settle=0,store=none", *args, check=False)
        return done.returncode, json.loads(done.stdout), out

    cut = left("cut", lambda n: ".layers.1." not in n)
    thin = left("thin", lambda n: "k_proj" not in n)
    left("whole", lambda n: True)
    status, said, out = export(cut)
    assert status == 1 and said["exported"] is None and "all tensors of layers 1" in said["why"] and not out.exists()
    assert "--no-base" in said["why"]
    status, said, out = export(cut, "--no-base")
    assert status == 0 and out.exists()
    status, said, out = export(thin, "--base", tmp_path / "base")
    assert status == 1 and "lacks 3 tensors of the base model" in said["why"] and not out.exists()
    status, said, out = export(thin, "-o", f"model={tmp_path / 'base'}")
    assert status == 1 and "lacks 3 tensors of the base model" in said["why"]
    status, said, out = export(tmp_path / "runs/whole", "--base", tmp_path / "base", "--verify")
    assert status == 0 and said["exported"]
    status, said, out = export(tmp_path / "runs")
    assert status == 1 and [c["kind"] for c in said["changes"]] == ["left_out"] and (out / "whole").exists()
    assert not (out / "cut").exists()
    done = command("export", thin, tmp_path / "x", "--base", tmp_path / "nothing", check=False)
    assert done.returncode == 2 and "nothing" in done.stderr
