"""`unshard check --deep`: what the bytes tell. Real checkpoints give no finding; harmed ones name file, rank,
tensor and element."""

import json
import re
import shutil
import struct

import pytest
import torch
from torch.distributed.checkpoint import FileSystemReader
from safetensors.torch import save_file

import archives
from conftest import ROOT
from damage import swap
from launches import LAUNCHES

GOLDEN = ROOT / "tests/golden"
NAN, INF = float("nan"), float("inf")


def findings(command, source, *args):
    done = command("check", source, "--json", "-o", "settle=0", *args, check=False)
    assert done.stderr == ""
    return json.loads(done.stdout)["findings"]


def deep(command, source):
    """What --deep finds that is not found without it."""
    before = findings(command, source)
    every = findings(command, source, "--deep")
    assert [f for f in every if f in before] == before
    return [f for f in every if f not in before and not is_of_safetensors(f)]


def is_of_safetensors(finding):
    """They have no checksums, which is no news to these tests."""
    return finding["id"] == "no_crcs" and finding["file"].endswith(".safetensors")


def texts(found, check, severity="problem"):
    assert {(f["check"], f["severity"]) for f in found} == {(check, severity)}, found
    return [f["text"] for f in found]


@pytest.fixture
def golden(tmp_path):
    return lambda name: shutil.copytree(GOLDEN / name, tmp_path / "source")


# -- sound --

def assert_sound(command, top):
    checked = command("check", top, "--deep", "--json", "-o", "settle=0", check=False)
    assert json.loads(checked.stdout)["checkpoints"] and json.loads(checked.stdout)["read_bytes"]
    assert deep(command, top) == []


@pytest.mark.parametrize("launch", LAUNCHES)
def test_real_checkpoints_are_sound(command, made, launch):
    assert_sound(command, made(launch, LAUNCHES[launch][2][0]).parent)


@pytest.mark.parametrize("name", ["zero", "older", "dcp", "run"])
def test_golden_checkpoints_are_sound(command, name):
    assert_sound(command, GOLDEN / name)


def test_how_much_was_read(command, golden):
    done = command("check", golden("run"), "--deep", "-o", "settle=0")
    assert done.stdout.startswith("1 checkpoint: 0 problems, 0 notes; ")
    assert done.stdout.endswith("kB read\n")


# -- a flipped bit --

FILES = {  # fixture -> files with CRCs
    "ranks/fsdp2": ["model_world_size_2_rank_1.pt", "optim_world_size_2_rank_0.pt"],
    "zero/z2_w3": ["global_step2/mp_rank_00_model_states.pt",
                   "global_step2/bf16_zero_pp_rank_2_mp_rank_00_optim_states.pt",
                   "global_step2_universal/zero/emb.weight/exp_avg_sq.pt"],
    "zero/z3_w2": ["global_step2/zero_pp_rank_1_mp_rank_00_model_states.pt"],
    "run/checkpoint-2": ["rng_state_1.pth"],
}


@pytest.mark.parametrize("name,file", [(n, f) for n, files in FILES.items() for f in files])
def test_one_bit_of_a_torch_file(command, golden, name, file):
    path = golden(name) / file
    data = {n: r for n, r in archives.records(path).items() if n.startswith("data/")}
    name, (offset, length) = max(data.items(), key=lambda r: r[1][1])
    archives.flip(path, offset + length - 1, 3)
    found = deep(command, path.parents[file.count("/")])
    assert {f["check"] for f in found} <= {"crc", "master"}  # a flipped fp32 copy is both
    [text] = texts([f for f in found if f["check"] == "crc"], "crc")
    assert path.name in text and f"/{name}" in text and "copy it back" in text


def largest_record(path):
    """Of the archives in a DCP shard: a record's data end where its descriptor starts."""
    raw = path.read_bytes()
    ends = [i for i in range(len(raw)) if raw.startswith(b"PK\x07\x08", i)]
    sizes = {i: struct.unpack_from("<I", raw, i + 8)[0] for i in ends}
    pickles = [i for i in ends if raw[i - 1:i] == b"."]
    end = max(set(ends) - set(pickles), key=lambda i: sizes[i])
    return end - sizes[end], sizes[end]


@pytest.mark.parametrize("part", ["pytorch_model_fsdp_0", "optimizer_0"])
def test_one_bit_of_a_dcp_shard(command, golden, part):
    source = golden("run")
    path = source / "checkpoint-2" / part / "__1_0.distcp"
    offset, length = largest_record(path)
    archives.flip(path, offset + length // 2)
    [text] = texts(deep(command, source), "crc")
    assert text.startswith(f"{part}/__1_0.distcp") and "archive/" in text


def test_an_item_without_its_end(command, golden):
    source = golden("run")
    path = source / "checkpoint-2/optimizer_0/__0_0.distcp"
    raw = bytearray(path.read_bytes())
    end = raw.index(b"PK\x05\x06")
    raw[end:end + 22] = bytes(22)
    path.write_bytes(raw)
    [text] = texts(deep(command, source), "unreadable")
    assert "__0_0.distcp (rank 0): tensor " in text and "no end record" in text


def exchange(a, b):
    first = a.read_bytes()
    a.write_bytes(b.read_bytes())
    b.write_bytes(first)


def truncate(a, b):
    for path in (a, b):
        path.write_bytes(path.read_bytes()[:2000])


@pytest.mark.parametrize("harm", [exchange, truncate])
def test_a_file_of_which_nothing_can_be_read_is_one_finding(command, golden, harm):
    """Whether it holds 26 hyper-parameters or all tensors; the finding names the file and its rank."""
    source = golden("run")
    for part in ("pytorch_model_fsdp_0", "optimizer_0"):
        harm(*(source / "checkpoint-2" / part / f"__{rank}_0.distcp" for rank in (0, 1)))
    shallow = findings(command, source)
    every = findings(command, source, "--deep")
    files = [f["file"] for f in every]
    assert len(files) == len(set(files)) == 4, files
    assert len({f["file"] for f in shallow}) == len(shallow) >= 1
    for f in every:
        rank = f["file"][-len("0_0.distcp")]
        assert f["severity"] == "problem" and f"__{rank}_0.distcp" in f["text"] and f["advice"]
    if harm is exchange:
        assert [f["text"].partition("; the first: ")[0] for f in shallow] == [
            "optimizer_0/__1_0.distcp (rank 1): optimizer.param_groups.0.weight_decay and 25 more items cannot be read: "
            "the file is another rank's, of another save, or damaged"]
        assert all("another rank's, of another save, or damaged" in f["text"] for f in every), every


def test_one_bit_of_a_compressed_item(command, golden):
    source = golden("dcp/zstd")
    path = source / "ckpt/__0_0.distcp"
    want = len(findings(command, source))
    hits = set()
    for offset in range(200, path.stat().st_size, path.stat().st_size // 16):
        archives.flip(path, offset)
        found = deep(command, source)
        assert len(findings(command, source)) >= want
        hits |= {f["check"] for f in found}
        for f in found:
            assert "__0_0.distcp" in f["text"] and f["severity"] == "problem"
        archives.flip(path, offset)
    assert {"crc", "unreadable"} & hits
    assert deep(command, source) == []


def test_files_that_recorded_no_crc(command, tmp_path):
    tensor = {"w": torch.arange(6.0)}
    torch.serialization.set_crc32_options(False)
    try:
        torch.save(tensor, tmp_path / "model_world_size_1_rank_0.pt")
    finally:
        torch.serialization.set_crc32_options(True)
    [text] = texts(deep(command, tmp_path), "no_crc", "note")
    assert "model_world_size_1_rank_0.pt" in text and "set_crc32_options(False)" in text


def model_of(folder, tensors):
    folder.mkdir(parents=True)
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    shutil.copy(GOLDEN / "run/config.json", folder)
    return folder / "model.safetensors"


def test_safetensors_have_no_checksums(command, tmp_path):
    """One note, however many checkpoints; none once they are sealed."""
    for i in range(3):
        model_of(tmp_path / f"runs/model{i}", {"a.weight": torch.rand(8, 8)})
    found = [f for f in findings(command, tmp_path / "runs", "--deep") if f["id"] == "no_crcs"]
    assert len(found) == 1 and "3 files record no CRCs" in found[0]["text"]
    seals = ("--seals", tmp_path / "seals")
    command("seal", tmp_path / "runs", "-o", "settle=0", *seals)
    assert [f for f in findings(command, tmp_path / "runs", "--deep", *seals) if f["id"] == "no_crcs"] == []


@pytest.mark.parametrize("keep,found", [(0.3, True), (0.9, False)])
def test_safetensors_that_end_in_zeros(command, tmp_path, keep, found):
    """As a copier leaves a file whose size it had reserved, on a file system that writes its holes; the end of a last
    tensor may be zero by right."""
    path = model_of(tmp_path / "model", {f"{n}.weight": torch.rand(40, 40) + 1 for n in "abcd"})
    size = path.stat().st_size
    with open(path, "r+b") as f:
        f.seek(int(size * keep))
        f.write(bytes(size - f.tell()))
    got = [f for f in deep(command, path.parent) if f["id"] == "file_ends_in_zeros"]
    assert bool(got) == found
    assert not found or (got[0]["severity"] == "note" and got[0]["tensor"] == "b.weight")


def test_random_states_that_changed_places(command, golden):
    """torch calls a file's records after the name that it was saved under."""
    source = golden("run")
    a, b = (source / f"checkpoint-2/rng_state_{rank}.pth" for rank in (0, 1))
    swap(a, b)
    assert [(f["id"], f["found"]) for f in deep(command, source)] == [
        ("file_saved_as", "rng_state_1"), ("file_saved_as", "rng_state_0")]


def test_a_shard_copied_over_another(command, golden):
    folder = golden("dcp") / "megatron/iter_0000010"
    shutil.copy2(folder / "__1_0.distcp", folder / "__1_1.distcp")
    [text] = texts(deep(command, folder), "mixed", "note")
    assert "__1_1.distcp and " in text and "hold the same bytes" in text


def test_files_of_other_objects(command, golden):
    source = golden("run")
    torch.save({"state": {}, "param_groups": []}, source / "checkpoint-2/scheduler.pt")
    assert "holds an optimizer's state" in texts(deep(command, source), "mixed")[0]
    torch.save({"weight": torch.zeros(2), "bias": torch.zeros(1)}, source / "checkpoint-2/scheduler.pt")
    assert "holds tensors by name alone" in texts(deep(command, source), "mixed")[0]
    (source / "checkpoint-2/scheduler.pt").write_bytes(b"")
    assert "torch.save did not write this file" in texts(deep(command, source), "unreadable")[0]


def test_a_record_without_a_value_in_a_hyper_parameter(command, golden):
    """torch.load reads serialization_id of each item, and fails if it is damaged."""
    folder = golden("run") / "checkpoint-2/optimizer_0"
    item = next(at for index, at in FileSystemReader(folder).read_metadata().storage_data.items()
                if index.fqn.endswith(".differentiable"))
    path = folder / item.relative_path
    data = bytearray(path.read_bytes())
    record = data.index(b"serialization_idFB", item.offset)
    data[data.index(b"PK\7\10", record) - 5] ^= 128
    path.write_bytes(data)
    [found] = [f for f in findings(command, folder.parent) if f["severity"] == "problem"]
    assert found["file"].endswith(item.relative_path) and "serialization_id is damaged" in found["text"]


def test_a_pickle_as_a_custom_checkpoint(command, golden):
    """Accelerate loads it by torch.load; .metadata is a pickle too."""
    checkpoint = golden("older/accelerate0.29.3-torch2.2.2_f1_sh_w3/run") / "ckpt"
    shutil.copy(checkpoint / "pytorch_model_fsdp_0/.metadata", checkpoint / "custom_checkpoint_0.pkl")
    assert "custom_checkpoint_0.pkl: torch.save did not write this file" in texts(deep(command, checkpoint), "unreadable")[0]


def test_an_optimizer_under_a_temporary_name(command, golden, tmp_path):
    command("export", golden("run") / "checkpoint-2", tmp_path / "full", "--view", "full")
    (tmp_path / "full/optimizer.pt").rename(tmp_path / "full/optimizer.pt.tmp")
    assert "optimizer_missing" in [f["id"] for f in findings(command, tmp_path / "full")]


def test_a_link_to_nothing_as_metadata_json(command, golden):
    folder = golden("dcp") / "megatron/iter_0000010"
    (folder / "metadata.json").unlink()
    (folder / "metadata.json").symlink_to("nothing")
    assert "megatron_no_format" in [f["id"] for f in findings(command, folder)]


@pytest.mark.parametrize("place", ["copy", "link"])
def test_a_shard_as_random_states(command, golden, place):
    """torch.load takes a .distcp whose items are of one layout for its first tensor."""
    checkpoint = golden("run") / "checkpoint-2"
    shard, states = checkpoint / "optimizer_0/__0_0.distcp", checkpoint / "rng_state_1.pth"
    assert torch.is_tensor(load(shard))
    states.unlink()
    shutil.copy(shard, states) if place == "copy" else states.symlink_to(shard)
    assert "rng_state_1.pth holds one tensor: it is another file" in texts(deep(command, checkpoint), "mixed")[0]


def test_random_states_in_other_forms(command, golden):
    """Scripts keep the bytes of torch.get_rng_state as they are, or by device."""
    checkpoint = golden("run") / "checkpoint-2"
    for states in (torch.get_rng_state(), {"cpu": torch.get_rng_state()}):
        torch.save(states, checkpoint / "rng_state_1.pth")
        assert not deep(command, checkpoint)


# -- NaN and infinity --

def plant(path, tensor, element, value, kind="f"):
    """A value over one element of a tensor that occurs in a torch file; its CRC is made right."""
    at, length = archives.tensor_at(path, tensor)
    whole = archives.record_of(path, at) if path.suffix == ".pt" else (at, length)
    archives.poke(path, whole, at + element * struct.calcsize(kind), struct.pack("<" + kind, value))


def load(path):
    return torch.load(path, weights_only=False)


@pytest.mark.parametrize("value,what", [(NAN, "1 NaN"), (INF, "1 infinity"), (-INF, "1 infinity")])
def test_a_weight_that_is_not_finite(command, golden, value, what):
    path = golden("ranks/fsdp2") / "model_world_size_2_rank_1.pt"
    local = load(path)["emb.weight"].to_local()
    assert local.shape == (1, 2) # rows 0 and 1 are rank 0's
    plant(path, local, 1, value)
    [text] = texts(deep(command, path.parent), "not_finite")
    assert text.startswith(f"weight emb.weight has {what} among its 6 elements, the first is element 5, "
                           "in model_world_size_2_rank_1.pt (rank 1): ")


@pytest.mark.parametrize("state", ["exp_avg", "exp_avg_sq"])
def test_a_moment_that_is_not_finite(command, golden, state):
    path = golden("ranks/fsdp2") / "optim_world_size_2_rank_0.pt"
    local = load(path)["state"][0][state].to_local()
    for element in (1, 3):
        plant(path, load(path)["state"][0][state].to_local(), element, NAN)
    [text] = texts(deep(command, path.parent), "not_finite")
    assert text.startswith(f"{state} of emb.weight has 2 NaNs among its 6 elements, the first is element 1, "
                           "in optim_world_size_2_rank_0.pt (rank 0): ")
    assert local.numel() == 4


def test_a_master_that_is_not_finite(command, golden):
    source = golden("zero/z2_w3")
    path = source / "global_step2/bf16_zero_pp_rank_0_mp_rank_00_optim_states.pt"
    want = next(line.split() for line in (source / "expected.txt").read_text().splitlines()
                if line.startswith("master emb.weight"))
    raw, start = path.read_bytes(), bytes.fromhex(want[5])[:8]
    assert raw.count(start) == 1
    at = raw.index(start)
    archives.poke(path, archives.record_of(path, at), at + 4, struct.pack("<f", INF))
    found = deep(command, source / "global_step2")
    assert [f["check"] for f in found] == ["not_finite", "master"]
    assert found[0]["text"].startswith("the fp32 copy of emb.weight has 1 infinity among its 21 elements, "
                                       f"the first is element 1, in {path.name} (rank 0): ")


def test_a_dcp_tensor_that_is_not_finite(command, tmp_path, made):
    case = shutil.copytree(made("d2", "fsdp2"), tmp_path / "case")
    path = max(case.rglob("*.distcp"), key=lambda p: p.stat().st_size)
    offset, length = largest_record(path)
    archives.poke(path, (offset, length), offset + 8, struct.pack("<f", NAN))
    [text] = texts(deep(command, case), "not_finite")
    assert "has 1 NaN among its" in text and f"in {path.name}" in text


@pytest.mark.parametrize("dtype,elements,at,value,what", [
    (torch.bfloat16, 12, 9, NAN, "1 NaN"), (torch.float32, 5, 0, INF, "1 infinity"),
    (torch.float16, 3, 1, -INF, "1 infinity"), (torch.float64, 3, 2, NAN, "1 NaN"),
    (torch.float8_e4m3fn, 4, 3, NAN, "1 NaN")])
def test_safetensors_that_are_not_finite(command, tmp_path, golden, dtype, elements, at, value, what):
    values = torch.arange(elements, dtype=torch.float64)
    values[at] = value
    save_file({"model.a": values.to(dtype), "model.mask": torch.zeros(2).long()}, tmp_path / "model.safetensors",
              {"format": "pt"})
    shutil.copy(golden("run") / "config.json", tmp_path)
    [text] = texts([f for f in deep(command, tmp_path) if f["path"] == tmp_path.name], "not_finite")
    assert text.startswith(f"weight model.a has {what} among its {elements} elements, the first is element {at}, in ")


def test_torch_files_that_are_passed_through(command, golden):
    source = golden("run/checkpoint-2")
    states = {"state": {0: {"exp_avg": torch.zeros(3, 4), "exp_avg_sq": torch.tensor([1, INF, NAN])}}}
    torch.save(states, source / "optimizer.pt")
    torch.save({"ema": torch.tensor([NAN])}, source / "custom.pt")
    found = deep(command, source)
    assert [(f["check"], f["severity"]) for f in found] == [("not_finite", "problem"),
                                                            ("not_finite", "note")]
    assert found[1]["text"].startswith("tensor ema has 1 NaN among its 1 elements")
    assert found[0]["text"].startswith("tensor state.0.exp_avg_sq has 1 NaN and 1 infinity among its 3 "
                                       "elements, the first is element 1, in optimizer.pt: ")


def test_a_model_that_diverged_is_told_once(command, tmp_path, golden):
    save_file({f"layers.{i}.weight": torch.full((4, 4), NAN) for i in range(40)},
              tmp_path / "model.safetensors", {"format": "pt"})
    shutil.copy(golden("run") / "config.json", tmp_path)
    [text] = texts([f for f in deep(command, tmp_path) if f["path"] == tmp_path.name], "not_finite")
    assert text.startswith("weight layers.0.weight has 16 NaNs among its 16 elements, the first is element 0, in ")
    assert "; so have 39 more tensors: weight layers." in text
    assert text.count("weight layers.") == 7 and ", ...: training diverged" in text


def test_a_tensor_with_strides(command, tmp_path):
    path = tmp_path / "model_world_size_1_rank_0.pt"
    weight = torch.arange(20, dtype=torch.float64).view(4, 5)
    weight[3, 1] = NAN
    torch.save({"w": weight.t(), "v": weight[1:3, ::2], "x": weight[3]}, path)
    [text] = texts(deep(command, tmp_path), "not_finite")
    assert text.startswith("weight w has 1 NaN among its 20 elements, the first is element 7, in ")
    assert "; so has 1 more tensor: weight x: " in text
    torch.save({"x": weight[3]}, path)
    [text] = texts(deep(command, tmp_path), "not_finite")
    assert text.startswith("weight x has 1 NaN among its 5 elements, the first is element 1, in ")


def test_a_file_is_named_by_its_path(command, copied):
    """Model and optimizer both have a __0_0.distcp."""
    run = copied(ROOT / "tests/golden/run")
    with open(run / "checkpoint-2/optimizer_0/__0_0.distcp", "r+b") as f:
        f.seek(4000)
        f.write(b"\1")
    [text] = texts(deep(command, run), "crc")
    assert text.startswith("optimizer_0/__0_0.distcp (rank 0): record ")


def test_a_large_record_is_read_in_stretches(command, tmp_path):
    path = tmp_path / "model_world_size_1_rank_0.pt"
    weight = torch.arange(20_000_000, dtype=torch.float32)  # 80 MB; a stretch is 32 MiB
    torch.save({"w": weight}, path)
    assert deep(command, tmp_path) == []
    at, length = archives.records(path)["data/0"]
    with open(path, "r+b") as f:
        for element in ((32 << 20) // 4, 8_388_607, 19_999_999):
            f.seek(at + 4 * element)
            f.write(struct.pack("<f", NAN))
    found = deep(command, tmp_path)
    assert [f["check"] for f in found] == ["crc", "not_finite"]
    assert f"{length} bytes at {at}, has CRC" in found[0]["text"]
    assert "has 3 NaNs among its 20000000 elements, the first is element 8388607, " in found[1]["text"]


# -- weights and their fp32 copies --

@pytest.mark.parametrize("name", ["z2_w3", "z1_bf16_optimizer_w2"])
def test_a_weight_that_is_not_its_rounded_copy(command, golden, name):
    source = golden("zero/" + name)
    path = source / "global_step2/mp_rank_00_model_states.pt"
    want = load(path)["module"]["up.weight"]
    at = path.read_bytes().index(want.contiguous().view(torch.uint8).numpy().tobytes())
    old = struct.unpack_from("<H", path.read_bytes(), at + 14)[0]
    archives.poke(path, archives.record_of(path, at), at + 14, struct.pack("<H", old + 1))
    [text] = texts(deep(command, source / "global_step2"), "master")
    assert text.startswith("weight up.weight is not its fp32 copy rounded to bfloat16 in 1 of 15 elements: "
                           "element 7 is ")
    found = float(text.split("element 7 is ")[1].split(" ")[0])
    expected = float(text.split("rounds to ")[1].split(";")[0])
    assert torch.tensor(expected).item() == want.flatten()[7].item()
    assert torch.tensor(found).item() == \
        torch.tensor([old + 1], dtype=torch.uint16).view(torch.bfloat16).item()
    assert path.name in text and "optim_states.pt (rank " in text


def test_weights_of_another_save_are_told_once(command, golden):
    """All of them are unlike their fp32 copies."""
    source = golden("zero/z2_w3") / "global_step2"
    path = source / "mp_rank_00_model_states.pt"
    state = load(path)
    trained = [n for n, t in state["module"].items() if t.is_floating_point()]
    for name in trained:
        state["module"][name] += 1
    torch.save(state, path)
    [text] = texts(deep(command, source), "master")
    assert re.search(r"so are \d+ more weights: [a-z]+\.", text)


def test_records_of_one_file_are_told_once(command, golden):
    path = golden("ranks/fsdp2") / "model_world_size_2_rank_1.pt"
    data = [(at, length) for name, (at, length) in archives.records(path).items() if "data/" in name]
    with open(path, "r+b") as f:
        for at, _ in data:
            f.seek(at)
            byte = f.read(1)
            f.seek(at)
            f.write(bytes([byte[0] ^ 1]))
    [text] = texts(deep(command, path.parent), "crc")
    assert f"so {'are' if len(data) > 2 else 'is'} {len(data) - 1} more record" in text


def test_gathered_weights_of_stage_3(command, made, tmp_path):
    from deepspeed.utils.zero_to_fp32 import get_fp32_state_dict_from_zero_checkpoint

    source = shutil.copytree(made("h2", "z3-bf16") / "run", tmp_path / "run")
    path = source / "checkpoint-2/model.safetensors"
    held = get_fp32_state_dict_from_zero_checkpoint(source / "checkpoint-2")
    weights = {n: t.bfloat16().clone() for n, t in held.items()}  # as it is gathered for a save
    save_file(weights, path, {"format": "pt"})
    assert deep(command, source) == []
    up, norm = "model.layers.0.mlp.up_proj.weight", "model.norm.weight"
    for name, n, at in ((norm, 2, slice(3, 5)), (up, 1, slice(weights[up].shape[1] + 2, weights[up].shape[1] + 3))):
        changed = weights | {name: weights[name].clone()}
        changed[name].view(torch.int16).view(-1)[at] += 1
        save_file(changed, path, {"format": "pt"})
        [text] = texts(deep(command, source), "master")
        assert text.startswith(f"weight {name} is not its fp32 copy rounded to bfloat16 in {n} of "
                               f"{weights[name].numel()} elements: element {at.start} is ")


def test_nothing_is_written_and_wrong_uses_are_told(command, golden):
    source = golden("run")
    before = {p: p.stat().st_mtime_ns for p in source.rglob("*")}
    command("check", source, "--deep", "-o", "settle=0")
    assert {p: p.stat().st_mtime_ns for p in source.rglob("*")} == before
    done = command("check", "--deep", "--config", GOLDEN / "check/output_dir.good.json", check=False)
    assert (done.returncode, done.stdout) == (2, "")
