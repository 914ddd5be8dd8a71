"""The weights views against the framework's own live tensors, through the frameworks' own loaders."""

import json
from pathlib import Path

import pytest
import torch
import torch.distributed.checkpoint as dist_cp
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, AutoModelForImageTextToText

import trees
from launches import ACCELERATE, DCP, PLAIN_FAMILIES, RENAMED_FAMILIES, TRAINER

DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}


def ids(cases):
    return ["-".join(c) for c in cases]


def model_tensors(live):
    """Of everything that was saved, what the weights view shows: the subtree of the root key."""
    if any(name.startswith("model.") for name in live):
        return {n[len("model."):]: t for n, t in live.items() if n.startswith("model.")}
    return live


def without_tied_head(live):
    return {n: t for n, t in live.items() if n != "lm_head.weight"}


@pytest.mark.parametrize("step", [1, 2])
@pytest.mark.parametrize("launch,case", TRAINER, ids=ids(TRAINER))
def test_trainer_weights_are_the_live_tensors(made, mount, launch, case, step):
    folder = made(launch, case)
    m = mount(folder / "run", "names=memory")
    live = trees.tensors(folder / f"live-{step}.safetensors")
    if case.startswith("tied"):
        assert torch.equal(live["lm_head.weight"], live["model.embed_tokens.weight"])
        live = without_tied_head(live)
    shown = m / f"weights/checkpoint-{step}"
    trees.assert_same(trees.weights(shown), live)
    trees.assert_same(load_file(shown / "model.safetensors"), live)
    assert sorted(p.name for p in shown.iterdir()) == ["config.json", "model.safetensors"]


@pytest.mark.parametrize("launch,case", PLAIN_FAMILIES, ids=ids(PLAIN_FAMILIES))
def test_trainer_weights_are_byte_identical_to_save_pretrained(made, mount, launch, case):
    folder = made(launch, case)
    m = mount(folder / "run")
    for step in (1, 2):
        got = (m / f"weights/checkpoint-{step}/model.safetensors").read_bytes()
        assert got == (folder / f"pretrained-{step}/model.safetensors").read_bytes()


@pytest.mark.parametrize("launch,case", PLAIN_FAMILIES, ids=ids(PLAIN_FAMILIES))
def test_from_pretrained(made, mount, launch, case):
    folder = made(launch, case)
    m = mount(folder / "run")
    live = trees.tensors(folder / "live-2.safetensors")
    model = AutoModelForCausalLM.from_pretrained(m / "weights/checkpoint-2")
    state = model.state_dict()
    # Buffers that the trainer registered are no part of the published architecture.
    trees.assert_same(state, {n: t for n, t in live.items() if ".extra_" not in n})
    assert model.dtype == DTYPES[case[-4:]]
    shared = model.lm_head.weight.data_ptr() == model.model.embed_tokens.weight.data_ptr()
    assert shared == case.startswith("tied")


@pytest.mark.parametrize("launch,case", RENAMED_FAMILIES, ids=ids(RENAMED_FAMILIES))
def test_from_pretrained_of_families_published_under_other_names(made, mount, launch, case):
    folder = made(launch, case)
    m = mount(folder / "run")
    loader = AutoModelForImageTextToText if "llava" in case else AutoModelForCausalLM
    model, info = loader.from_pretrained(m / "weights/checkpoint-2", output_loading_info=True)
    assert not info["missing_keys"] and not info["unexpected_keys"], info
    trees.assert_same(model.state_dict(), trees.tensors(folder / "live-2.safetensors"))
    problems = (m / "weights/checkpoint-2/.unshard/problems.txt").read_text()
    assert "name" in problems and case.split("-")[0] in problems


@pytest.mark.parametrize("launch,case", ACCELERATE, ids=ids(ACCELERATE))
def test_accelerate_weights_are_the_live_tensors(made, mount, launch, case):
    folder = made(launch, case)
    m = mount(folder / "run")
    trees.assert_same(trees.weights(m / "weights/state"),
                      trees.tensors(folder / "live-0.safetensors"))


@pytest.mark.parametrize("launch,case", DCP, ids=ids(DCP))
def test_dcp_weights_are_the_live_tensors(made, mount, launch, case):
    folder = made(launch, case)
    m = mount(folder / "run")
    trees.assert_same(trees.weights(m / "weights/ckpt"),
                      model_tensors(trees.tensors(folder / "live-0.safetensors")))


@pytest.mark.parametrize("launch,case", [c for c in DCP if not c[1].startswith("hf")],
                         ids=ids([c for c in DCP if not c[1].startswith("hf")]))
def test_other_root_keys(made, mount, launch, case):
    folder = made(launch, case)
    live = trees.tensors(folder / "live-0.safetensors")
    extra = {n[len("extra."):]: t for n, t in live.items() if n.startswith("extra.")}
    m = mount(folder / "run", "root=extra")
    trees.assert_same(trees.weights(m / "weights/ckpt"), extra)


def test_without_a_root_key_all_but_the_optimizer(mount, tmp_path):
    state = {"net": {"w": torch.randn(5, 3)}, "buf": torch.arange(4),
             "optimizer": {"state": {"w": {"exp_avg": torch.ones(5, 3)}}}}
    dist_cp.save(state, checkpoint_id=tmp_path / "src/ckpt", no_dist=True)
    m = mount(tmp_path / "src")
    trees.assert_same(trees.weights(m / "weights/ckpt"),
                      {"net.w": state["net"]["w"], "buf": state["buf"]})


@pytest.mark.parametrize("view", DTYPES)
@pytest.mark.parametrize("launch,case", [("t2", "tied-f1-fp32"), ("t3", "untied-f2-bf16"),
                                         ("d4", "mesh2d"), ("d2", "zstd-bf16")])
def test_cast_views_equal_to(made, mount, launch, case, view):
    folder = made(launch, case)
    m = mount(folder / "run")
    where = "checkpoint-2" if launch[0] == "t" else "ckpt"
    plain = trees.weights(m / f"weights/{where}")
    want = {n: t.to(DTYPES[view]) if t.is_floating_point() else t for n, t in plain.items()}
    trees.assert_same(trees.weights(m / f"weights-{view}/{where}"), want)


def special_values():
    """Every 16-bit and 8-bit pattern, the f32 values between which rounding decides, f64."""
    every16 = torch.arange(1 << 16, dtype=torch.int32).to(torch.uint16)
    every8 = torch.arange(256, dtype=torch.int32).to(torch.uint8)
    high = torch.arange(1 << 16, dtype=torch.int64) << 16
    around = torch.cat([high + low for low in (0, 1, 0x7fff, 0x8000, 0x8001, 0xffff)])
    torch.manual_seed(3)
    anywhere = torch.randint(0, 1 << 32, (200_000,), dtype=torch.int64)
    to32 = lambda x: x.to(torch.uint32).view(torch.float32)
    return {
        "bf16": every16.view(torch.bfloat16), "fp16": every16.view(torch.float16),
        "f32.around": to32(around), "f32.anywhere": to32(anywhere),
        "f64": torch.cat([torch.randn(50_000, dtype=torch.float64) * 10.0 ** e
                          for e in (-46, -40, -8, 0, 4, 38, 300)]),
        "e4m3": every8.view(torch.float8_e4m3fn), "e5m2": every8.view(torch.float8_e5m2),
        "i64": torch.arange(9), "bool": torch.tensor([True, False, True]),
        "c64": torch.randn(7, dtype=torch.complex64), "u8": every8,
    }


@pytest.mark.parametrize("view", DTYPES)
def test_casts_of_every_value_equal_to(mount, tmp_path, view):
    state = special_values()
    dist_cp.save({"model": state}, checkpoint_id=tmp_path / "src/ckpt", no_dist=True)
    m = mount(tmp_path / "src")
    trees.assert_same(trees.weights(m / "weights/ckpt"), state)
    want = {n: t.to(DTYPES[view]) if t.is_floating_point() else t for n, t in state.items()}
    trees.assert_same_values(trees.weights(m / f"weights-{view}/ckpt"), want)


@pytest.mark.parametrize("view", DTYPES)
@pytest.mark.parametrize("case", ["tied-f1-fp32", "untied-f1-bf16", "llava-f1-fp32"])
def test_from_pretrained_takes_the_views_dtype(made, mount, case, view):
    m = mount(made("t2", case) / "run")
    shown = m / f"weights-{view}/checkpoint-2"
    loader = AutoModelForImageTextToText if "llava" in case else AutoModelForCausalLM
    assert loader.from_pretrained(shown).dtype == DTYPES[view]
    config = json.loads((shown / "config.json").read_text())
    names = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32"}
    for part in (config, config.get("text_config", {}), config.get("vision_config", {})):
        for key in ("dtype", "torch_dtype"):
            assert part.get(key) in (None, names[view])


def test_sharded_by_size_as_save_pretrained_does(made, mount, tmp_path):
    folder = made("t2", "untied-f2-fp32")
    m = mount(folder / "run", "max_shard_size=30KB")
    model = AutoModelForCausalLM.from_pretrained(folder / "pretrained-2")
    assert not [n for n in model.state_dict() if ".extra_" in n]
    shown = m / "weights/checkpoint-2"
    live = trees.tensors(folder / "live-2.safetensors")
    trees.assert_same(trees.weights(shown), live)
    shards = sorted(p.name for p in shown.glob("model-*.safetensors"))
    assert len(shards) > 2 and not (shown / "model.safetensors").exists()
    index = json.loads((shown / "model.safetensors.index.json").read_text())
    assert index["metadata"]["total_size"] == sum(t.nbytes for t in live.values())
    limit = 30_000
    for shard in shards:
        held = trees.tensors(shown / shard)
        assert len(held) == 1 or sum(t.nbytes for t in held.values()) <= limit
    model = AutoModelForCausalLM.from_pretrained(shown)
    trees.assert_same(model.state_dict(), {n: t for n, t in live.items() if ".extra_" not in n})


def test_sharded_files_are_byte_identical_to_save_pretrained(mount, tmp_path, made):
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(5)
    model = LlamaForCausalLM(LlamaConfig(
        vocab_size=101, hidden_size=24, intermediate_size=50, num_hidden_layers=3,
        num_attention_heads=4, num_key_value_heads=2, tie_word_embeddings=False))
    dist_cp.save({"model": model.state_dict()}, checkpoint_id=tmp_path / "src/ckpt", no_dist=True)
    model.config.save_pretrained(tmp_path / "src")
    model.save_pretrained(tmp_path / "want", max_shard_size="40KB")
    m = mount(tmp_path / "src", "max_shard_size=40KB")
    want = sorted((tmp_path / "want").glob("model*"))
    assert len(want) > 3
    for path in want:
        got = (m / f"weights/ckpt/{path.name}").read_bytes()
        if path.suffix == ".json":
            assert json.loads(got) == json.loads(path.read_bytes())
        else:
            assert got == path.read_bytes(), path.name


def test_sharded_after_from_pretrained_only_the_order_differs(made, mount, tmp_path):
    m = mount(made("t2", "untied-f2-fp32") / "run", "max_shard_size=20KB") / "weights/checkpoint-2"
    AutoModelForCausalLM.from_pretrained(m).save_pretrained(tmp_path / "again", max_shard_size="20KB")
    wrote, shown = (trees.weights(x) for x in (tmp_path / "again", m))
    trees.assert_same({n: t for n, t in shown.items() if ".extra_" not in n}, wrote)


def test_tied_names_are_kept_where_their_bytes_differ(mount, tmp_path, made):
    folder = made("t2", "tied-f1-fp32")
    state = trees.tensors(folder / "live-2.safetensors")
    state["lm_head.weight"] = state["lm_head.weight"] + 1
    dist_cp.save({"model": state}, checkpoint_id=tmp_path / "src/ckpt", no_dist=True)
    config = (folder / "run/config.json").read_bytes()
    (tmp_path / "src/config.json").write_bytes(config)
    trees.assert_same(trees.weights(mount(tmp_path / "src") / "weights/ckpt"), state)


def test_tied_names_are_kept_where_config_does_not_tie(mount, tmp_path):
    state = {"model.embed_tokens.weight": torch.ones(11, 4), "lm_head.weight": torch.ones(11, 4)}
    dist_cp.save({"model": state}, checkpoint_id=tmp_path / "src/ckpt", no_dist=True)
    trees.assert_same(trees.weights(mount(tmp_path / "src") / "weights/ckpt"), state)


def test_plain_directories_pass_through(mount, tmp_path):
    """What already is an inference directory is shown as it is, byte for byte."""
    state = {"a": torch.randn(4, 3), "b": torch.arange(5)}
    src = tmp_path / "src"
    for name in ("st", "bin"):
        (src / name).mkdir(parents=True)
        (src / name / "config.json").write_text('{"model_type": "llama"}')
    save_file(state, src / "st/model.safetensors", metadata={"format": "pt"})
    torch.save(state, src / "bin/pytorch_model.bin")
    m = mount(src)
    for path in ("st/model.safetensors", "st/config.json", "bin/pytorch_model.bin"):
        assert (m / f"weights/{path}").read_bytes() == (src / path).read_bytes()
    for mmap in (False, True):
        loaded = torch.load(m / "weights/bin/pytorch_model.bin", mmap=mmap, weights_only=True)
        trees.assert_same(loaded, state)


def test_adapters_are_shown_as_adapters(mount, tmp_path):
    state = {f"base_model.model.model.layers.0.self_attn.q_proj.lora_{x}.weight": torch.randn(4, 3)
             for x in "AB"}
    ckpt = tmp_path / "src/checkpoint-1"
    dist_cp.save({"model": state}, checkpoint_id=ckpt / "pytorch_model_fsdp_0", no_dist=True)
    (ckpt / "adapter_config.json").write_text('{"peft_type": "LORA", "r": 4}')
    shown = mount(tmp_path / "src") / "weights/checkpoint-1"
    trees.assert_same(trees.tensors(shown / "adapter_model.safetensors"), state)
    assert json.loads((shown / "adapter_config.json").read_text())["r"] == 4
    assert not (shown / "model.safetensors").exists()


@pytest.mark.sanitized
def test_a_zstd_item_larger_than_the_cache(made, mount, tmp_path):
    """The cache is smaller than one decompressed item, so everything spills and is read again."""
    torch.manual_seed(0)
    state = {"big": torch.randint(0, 7, (3000, 1000)).float(), "small": torch.randn(9)}
    from torch.distributed.checkpoint import FileSystemWriter
    from torch.distributed.checkpoint._extension import ZStandard

    dist_cp.save({"model": state}, no_dist=True, storage_writer=FileSystemWriter(
        tmp_path / "src/ckpt", _extensions=[ZStandard()]))
    spill = tmp_path / "spill"
    spill.mkdir()
    m = mount(tmp_path / "src", "mem=1M", f"cache_dir={spill}")
    trees.assert_same(trees.weights(m / "weights/ckpt"), state)
    want = {"big": state["big"].bfloat16(), "small": state["small"].bfloat16()}
    trees.assert_same(trees.weights(m / "weights-bf16/ckpt"), want)
    assert not list(spill.iterdir()), "spilled files are unlinked from the start"


def test_files_have_their_size_before_any_read(made, mount):
    m = mount(made("t3", "tied-f2-fp32") / "run")
    for path in Path(m / "weights-bf16").rglob("*"):
        if path.is_file():
            size = path.stat().st_size
            assert len(path.read_bytes()) == size, path
