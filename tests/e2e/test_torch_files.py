"""Torch files that a mount makes: what torch.load, zipfile and unzip say of them."""

import json
import os
import shutil
import signal
import subprocess
import sys
import zipfile

import pytest
import torch
from torch.distributed.checkpoint.format_utils import dcp_to_torch_save

import trees
from conftest import LONGEST_S
from make import sparse_dcp

MODES = [(mmap, safe) for mmap in (False, True) for safe in (False, True)]
CASES = [("r2", "f1", "checkpoint-2"), ("r2", "f2", "checkpoint-2"), ("r2", "full", "checkpoint-2"),
         ("r2", "acc", "state"), ("a3", "f1", "state"),
         ("t2", "tied-f2-bf16", "checkpoint-1")]
# Pieces that are no rows of the whole, or compressed: their CRCs are not free.
DEAR = [("d2", "zstd"), ("d4", "mesh2d")]


def torch_files(folder):
    return sorted(p for p in folder.rglob("*") if p.suffix in (".pt", ".bin", ".pth", ".pkl"))


def stats(m):
    return json.loads((m / ".unshard/stats.json").read_text())


def is_whole(path):
    """Both readers of zip files agree about it."""
    unzip = subprocess.run(["unzip", "-tqq", path], capture_output=True, text=True)
    try:
        with zipfile.ZipFile(path) as z:
            bad = z.testzip()
    except zipfile.BadZipFile as e:
        bad = str(e)
    assert (unzip.returncode == 0) == (bad is None), (path, unzip.stdout, bad)
    return bad is None


def load(path, mmap, safe):
    return torch.load(path, mmap=mmap, weights_only=safe, map_location="cpu")


def same(a, b, where=""):
    assert type(a) is type(b), where
    if torch.is_tensor(a):
        trees.assert_same({where: a}, {where: b})
    elif isinstance(a, dict):
        assert list(a) == list(b), where
        for key in a:
            same(a[key], b[key], f"{where}/{key}")
    elif isinstance(a, (list, tuple)):
        assert len(a) == len(b), where
        for i, (x, y) in enumerate(zip(a, b)):
            same(x, y, f"{where}/{i}")
    else:
        assert a == b, where


@pytest.mark.parametrize("launch,case,ckpt", CASES, ids=lambda v: v)
def test_every_mode_of_torch_load_gives_the_same(made, mount, launch, case, ckpt):
    m = mount(made(launch, case) / "run", "store=none")
    n = 0
    for view in ("full", "full-fsdp"):
        for path in torch_files(m / view / ckpt):
            if path.name.startswith(("rng_state", "random_states", "training_args", "custom_")):
                continue  # passed through; numpy's classes need weights_only=False
            n += 1
            first = load(path, False, False)
            for mmap, safe in MODES[1:]:
                same(load(path, mmap, safe), first)
    assert n >= 3


@pytest.mark.parametrize("launch,case,ckpt", [c for c in CASES if c[1] != "full"],
                         ids=lambda v: v)
def test_whole_zips_wherever_it_is_free(made, mount, launch, case, ckpt):
    m = mount(made(launch, case) / "run", "store=none")
    for view in ("full", "full-fsdp"):
        for path in torch_files(m / view / ckpt):
            assert is_whole(path), path
    assert stats(m)["crc_zero"] == 0 and stats(m)["crc_exact"] > 0


def test_a_full_states_crcs_are_taken_over(made, mount):
    """All but those of the two tensors that FSDP2 saved as parts of larger, padded storages."""
    m = mount(made("r2", "full") / "run", "store=none")
    for path in ("full/checkpoint-2/optimizer.pt",
                 "full-fsdp/checkpoint-2/pytorch_model_fsdp.bin"):
        with zipfile.ZipFile(m / path) as z:
            assert len(z.infolist()) > 30
            assert sum(i.CRC == 0 for i in z.infolist()) == 2
            for record in z.infolist():
                if record.CRC:
                    z.read(record)


@pytest.mark.parametrize("case,ckpt", [("f1", "checkpoint-2"), ("f2", "checkpoint-4"),
                                       ("acc", "state")])
def test_the_optimizer_is_what_dcp_loads(made, mount, tmp_path, case, ckpt):
    source = made("r2", case) / "run" / ckpt
    m = mount(source.parent, "store=none")
    dcp_to_torch_save(source / "optimizer_0", tmp_path / "optimizer.pt")
    want = torch.load(tmp_path / "optimizer.pt", weights_only=False)["optimizer"]
    named = load(m / "full-fsdp" / ckpt / "optimizer.bin", True, True)
    assert sorted(named["state"]) == sorted(want["state"])
    for name, states in want["state"].items():
        trees.assert_same(named["state"][name], states)
    same([dict(sorted(g.items())) for g in named["param_groups"]],
         [dict(sorted(g.items())) for g in want["param_groups"]])

    numbered = load(m / "full" / ckpt / ("optimizer.bin" if case == "acc" else "optimizer.pt"),
                    False, True)
    order = [n for g in named["param_groups"] for n in g["params"]]
    assert [i for g in numbered["param_groups"] for i in g["params"]] == list(range(len(order)))
    assert sorted(numbered["state"]) == sorted(order.index(n) for n in named["state"])
    for number, states in numbered["state"].items():
        trees.assert_same(states, named["state"][order[number]])


def test_the_model_is_what_was_live(made, mount):
    folder = made("t2", "tied-f2-bf16")
    m = mount(folder / "run", "store=none")
    live = trees.tensors(folder / "live-1.safetensors")
    trees.assert_same(load(m / "full-fsdp/checkpoint-1/pytorch_model_fsdp.bin", True, True), live)
    in_full = trees.tensors(m / "full/checkpoint-1/model.safetensors")
    trees.assert_same(in_full, {n: live[n] for n in live if n != "lm_head.weight"})


# -- CRCs that are not free --

def model(m):
    return m / "full-fsdp/ckpt/pytorch_model_fsdp.bin"


@pytest.mark.parametrize("launch,case", DEAR, ids=lambda v: v)
def test_opening_reads_no_data_and_leaves_dear_crcs_zero(made, mount, launch, case):
    m = mount(made(launch, case) / "run", "store=none")
    assert not is_whole(model(m))
    assert stats(m)["crc_zero"] > 0 and stats(m)["crc_total"] == 0
    for mmap, safe in MODES:
        load(model(m), mmap, safe)


@pytest.mark.parametrize("launch,case", DEAR, ids=lambda v: v)
def test_exact_crcs(made, mount, launch, case):
    m = mount(made(launch, case) / "run", "store=none", "crc=exact")
    assert is_whole(model(m))
    after = stats(m)
    assert after["crc_zero"] == 0 and after["crc_exact"] > 0
    assert after["crc_done"] == after["crc_total"] > 0
    plain = mount(made(launch, case) / "run", "store=none")
    same(load(model(m), False, True), load(model(plain), False, True))


def test_what_was_given_out_stays(made, mount, tmp_path):
    """Zeros that a reader of the directory has seen stay when the data is read."""
    m = mount(made("d2", "zstd") / "run", "store=none")
    with zipfile.ZipFile(model(m)) as z:
        seen = {i.filename: i.CRC for i in z.infolist()}
    assert 0 in seen.values()
    shutil.copy(model(m), tmp_path / "copy.zip")
    with zipfile.ZipFile(tmp_path / "copy.zip") as z:
        assert {i.filename: i.CRC for i in z.infolist()} == seen


def test_a_copy_from_the_first_byte_on_is_whole(made, mount, tmp_path):
    """Each CRC stands behind its data; all were found out when the file was opened."""
    m = mount(made("d2", "zstd") / "run", "store=none", "readahead=0", "crc=exact")
    with open(model(m), "rb", buffering=0) as f, open(tmp_path / "copy.zip", "wb") as out:
        while block := f.read(64):
            out.write(block)
    assert is_whole(tmp_path / "copy.zip")


def test_warm_finds_them_ahead_of_time(made, mount, command, tmp_path):
    run = made("d2", "zstd") / "run"
    store = f"store={tmp_path / 'store.db'}"
    assert "all CRCs are known" in command("warm", run / "ckpt", "-o", store).stdout
    m = mount(run, store)
    assert is_whole(model(m))
    assert stats(m)["crc_zero"] == 0 and stats(m)["crc_total"] == 0
    above = mount(run.parent, store, "crc=exact")
    assert is_whole(above / "full-fsdp/run/ckpt/pytorch_model_fsdp.bin")
    assert stats(above)["crc_total"] == 0


def test_warm_without_a_store_is_refused(made, command):
    done = command("warm", made("d2", "zstd") / "run/ckpt", "-o", "store=none", check=False)
    assert done.returncode == 2 and "store" in done.stderr


def test_what_was_found_out_is_remembered(made, mount, eventually, tmp_path):
    run = made("d2", "zstd") / "run"
    store = f"store={tmp_path / 'store.db'}"
    first = mount(run, store, "readahead=0", "crc=exact")
    load(model(first), False, True)
    assert stats(first)["crc_done"] > 0

    def all_known():
        m = mount(run, store)
        assert stats(m)["crc_exact"] == 0
        return is_whole(model(m))

    eventually(all_known)


def test_who_asks_for_no_crcs_pays_for_none(made, mount, tmp_path):
    """Reading all of a file finds no CRC out: neither for this mount nor for the next."""
    run = made("d2", "zstd") / "run"
    store = f"store={tmp_path / 'store.db'}"
    for _ in range(2):
        m = mount(run, store)
        shutil.copy(model(m), tmp_path / "copy.zip")
        with zipfile.ZipFile(tmp_path / "copy.zip") as z:
            assert 0 in {i.CRC for i in z.infolist()}
        assert stats(m)["crc_done"] == 0 and stats(m)["crc_zero"] > 0


def test_an_open_that_takes_long_can_be_interrupted(made, mount, eventually):
    def reads(m):
        return stats(m)["source_reads"]

    run, options = made("d4", "mesh2d") / "run", ("store=none", "crc=exact")
    whole = mount(run, *options)
    model(whole).stat()
    before = reads(whole)
    model(whole).open("rb").close()
    needed = reads(whole) - before
    assert needed > 16
    m = mount(run, *options, "delay_read_us=1000000")
    m_path = model(m)
    m_path.stat()
    before = reads(m)
    reader = subprocess.Popen([sys.executable, "-c", f"open({str(m_path)!r}, 'rb')"])
    eventually(lambda: reads(m) > before)
    reader.send_signal(signal.SIGKILL)
    reader.wait(timeout=LONGEST_S)
    assert reads(m) - before < needed, "it went on to its end"


# -- size --

@pytest.fixture(scope="module")
def large(tmp_path_factory):
    run = tmp_path_factory.mktemp("large") / "run"
    tensors = {"first": (3, 8), "huge": (33000, 66000), "behind": (5, 7), "last": (4, 4)}
    os.makedirs(run / "checkpoint-1")
    sparse_dcp.write(run / "checkpoint-1/pytorch_model_fsdp_0", tensors, ranks=2)
    (run / "checkpoint-1/trainer_state.json").write_text(json.dumps(
        {"global_step": 1, "train_batch_size": 1, "logging_steps": 1, "eval_steps": 1,
         "save_steps": 1}))
    yield run, tensors
    shutil.rmtree(run)


def test_beyond_four_gigabytes(large, mount):
    run, tensors = large
    m = mount(run, "store=none")
    path = m / "full-fsdp/checkpoint-1/pytorch_model_fsdp.bin"
    assert path.stat().st_size > 4 << 30
    for safe in (True, False):
        loaded = load(path, True, safe)
        assert {n: tuple(t.shape) for n, t in loaded.items()} == tensors
        for name, tensor in loaded.items():
            rows = -(-tensor.shape[0] // 2)
            for rank in range(2):
                got = tensor[rank * rows].view(torch.int16)[:8] if tensor.shape[1] >= 8 else None
                if got is not None:
                    mark = sparse_dcp.mark(name, rank)
                    assert got.numpy().tobytes() == mark, (name, rank)
            assert tensor[-1, -1] == 0 or tensor.numel() < 64
    with zipfile.ZipFile(path) as z:
        info = {i.filename: i for i in z.infolist()}
        assert max(i.file_size for i in info.values()) == 33000 * 66000 * 2
        assert sum(i.header_offset > 4 << 30 for i in info.values()) >= 4
        assert z.read("pytorch_model_fsdp/version") == b"3\n"  # it stands behind the huge one
    done = subprocess.run(["unzip", "-l", path], capture_output=True, text=True)
    assert done.returncode == 0 and str(33000 * 66000 * 2) in done.stdout
