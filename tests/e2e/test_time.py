"""What is seen while things change: saves in progress, runs that grow, files replaced, cut, gone."""

import errno
import os
import shutil

import pytest
import torch
import torch.distributed.checkpoint as dist_cp
from transformers.trainer_utils import get_last_checkpoint

import trees

FRESH_S = 2  # after which what is known of a directory may not be older than now
LONG_S = 3600
PROBLEM = "UNSHARD_PROBLEM.txt"
VIEWS = ("weights", "weights-bf16", "dcp")


def shown(m, view):
    return sorted(n for n in os.listdir(m / view) if n.startswith("checkpoint"))


def in_order_written(ckpt):
    """The files of a checkpoint as the trainer wrote them, one after another."""
    files = [p for p in ckpt.rglob("*") if p.is_file()]
    return sorted(files, key=lambda p: p.stat().st_mtime_ns)


@pytest.mark.parametrize("launch,case", [("t2", "tied-f1-fp32"), ("t3", "untied-f2-bf16")])
def test_a_save_held_between_each_two_files(made, copied, mount, faults, eventually, launch, case):
    """Each file appears half, then whole. What is listed meanwhile must be right and complete. The mount's
    clock goes on after each step; what the kernel keeps of a name is waited for."""
    folder = made(launch, case)
    run = copied(folder / "run")
    shutil.rmtree(run / "checkpoint-2")
    m = mount(run, f"settle={2 * LONG_S}", changing=True, faults=faults)
    want = (folder / "pretrained-2/model.safetensors").read_bytes()
    order = in_order_written(folder / "run/checkpoint-2")
    ended = next(i for i, p in enumerate(order) if p.name == "trainer_state.json")
    seen = {view: [] for view in VIEWS}
    for i, path in enumerate(order):
        target = run / path.relative_to(folder / "run")
        target.parent.mkdir(parents=True, exist_ok=True)
        whole = path.read_bytes()
        half = whole[:len(whole) // 2]
        for part in (half, whole):
            if path.name == ".metadata":  # appears whole, under its own name, by a rename
                (target.parent / ".metadata.tmp").write_bytes(part)
                if part is whole:
                    (target.parent / ".metadata.tmp").rename(target)
            else:
                target.write_bytes(part)
            faults.pass_time(FRESH_S)
            for view in VIEWS:
                seen[view].append("checkpoint-2" in shown(m, view))
                eventually(lambda: (m / view / "checkpoint-2").exists() == seen[view][-1])
                if not seen[view][-1]:
                    continue
                assert PROBLEM not in os.listdir(m / view / "checkpoint-2"), (view, path)
            if seen["weights"][-1]:
                assert (m / "weights/checkpoint-2/model.safetensors").read_bytes() == want
            if seen["dcp"][-1]:
                assert i >= ended, "listed what is on disk before the save had ended"
    for view, history in seen.items():
        assert history == sorted(history), f"{view} came and went: {history}"
        assert not history[0] and history[-1], view
    assert trees.listing(m / "dcp/checkpoint-2") == trees.listing(run / "checkpoint-2")


def test_a_save_that_died_is_hidden_then_listed_with_its_problem(made, copied, mount, faults, eventually):
    folder = made("t2", "tied-f1-fp32")
    run = copied(folder / "run")
    (run / "checkpoint-2/trainer_state.json").unlink()
    (run / "checkpoint-2/pytorch_model_fsdp_0/.metadata").unlink()
    for path in (run / "checkpoint-2").rglob("*"):
        os.utime(path)
    m = mount(run, f"settle={LONG_S}", changing=True, faults=faults)
    assert shown(m, "weights") == shown(m, "dcp") == ["checkpoint-1"]
    faults.pass_time(LONG_S)
    eventually(lambda: shown(m, "weights") == ["checkpoint-1", "checkpoint-2"])
    names = os.listdir(m / "weights/checkpoint-2")
    assert PROBLEM in names and "model.safetensors" not in names
    text = (m / f"weights/checkpoint-2/{PROBLEM}").read_text()
    assert ".metadata" in text and text.strip()
    assert (m / "weights/checkpoint-1/model.safetensors").read_bytes() == \
        (folder / "pretrained-1/model.safetensors").read_bytes()


def test_a_second_save_is_hidden_until_it_has_ended(tmp_path, mount, eventually):
    """As torch writes it: the shards anew in place, one after another, and .metadata by a rename at last."""
    ckpt = tmp_path / "src/ckpt"

    def save(value):
        state = {f"w{i}": torch.full((64,), float(value)) for i in range(4)}
        dist_cp.save({"model": state}, no_dist=True,
                     storage_writer=dist_cp.FileSystemWriter(ckpt, single_file_per_rank=False))

    save(1)
    m = mount(ckpt.parent, f"settle={LONG_S}", changing=True)
    path = m / "weights/ckpt/model.safetensors"
    first = path.read_bytes()
    late = sorted(ckpt.glob("*.distcp"))[::2]
    old = [(p, p.read_bytes(), p.stat().st_mtime_ns) for p in late]
    os.link(ckpt / ".metadata", tmp_path / "metadata")
    save(2)
    for shard, content, mtime in old:  # as before these were written
        shard.write_bytes(content)
        os.utime(shard, ns=(mtime, mtime))
    (tmp_path / "metadata").rename(ckpt / ".metadata")
    eventually(lambda: not path.exists() and "ckpt" not in os.listdir(m / "weights"))
    save(2)
    eventually(lambda: path.exists() and path.read_bytes() != first)
    assert path.read_bytes()[-1024:] == torch.full((256,), 2.0).numpy().tobytes()


@pytest.mark.sanitized
def test_a_run_that_grows(made, copied, mount, eventually):
    folder = made("t2", "tied-f1-fp32")
    run = copied(folder / "run")
    m = mount(run, f"settle={LONG_S}", changing=True)
    assert shown(m, "weights") == ["checkpoint-1", "checkpoint-2"]
    assert not (m / "weights/checkpoint-3").exists()
    shutil.copytree(folder / "run/checkpoint-2", run / "tmp")
    (run / "tmp").rename(run / "checkpoint-3")
    eventually(lambda: "checkpoint-3" in shown(m, "weights"))
    eventually(lambda: (m / "dcp/checkpoint-3").exists())
    assert (m / "weights/checkpoint-3/model.safetensors").read_bytes() == \
        (folder / "pretrained-2/model.safetensors").read_bytes()
    shutil.rmtree(run / "checkpoint-1")
    eventually(lambda: shown(m, "weights") == ["checkpoint-2", "checkpoint-3"])
    eventually(lambda: not (m / "weights/checkpoint-1/model.safetensors").exists())


@pytest.mark.parametrize("launch,case,inner", [
    ("h2", "z2-bf16", "global_step*"), ("h2", "z3-fp32", "global_step*"),
    ("t2", "tied-f1-fp32", "optimizer_0")])
def test_shards_that_arrive_in_a_directory_made_earlier(made, copied, mount, eventually, faults, launch,
                                                        case, inner):
    """As rsync -r and s3 sync bring them: directories first, shards long after."""
    folder = made(launch, case)
    run = copied(folder / "run")
    m = mount(run, "settle=60", changing=True, faults=faults)
    last = get_last_checkpoint(str(m / "weights"))
    source = run / os.path.basename(last)
    ckpt = run / "checkpoint-9"
    (ckpt / next(source.glob(inner)).name).mkdir(parents=True)
    for _ in range(4):  # longer than a directory's times are in doubt
        faults.pass_time(3)
        assert "checkpoint-9" not in shown(m, "weights")
        assert get_last_checkpoint(str(m / "weights")) == last
        assert not (m / "weights/checkpoint-9").exists()
    shutil.copytree(source, ckpt, dirs_exist_ok=True)
    eventually(lambda: "checkpoint-9" in shown(m, "weights"))
    assert (m / "weights/checkpoint-9/model.safetensors").read_bytes() == \
        (m / "weights" / source.name / "model.safetensors").read_bytes()


def test_a_new_run_appears(made, copied, mount, eventually):
    folder = made("t2", "tied-f1-fp32")
    run = copied(folder / "run", "runs/one")
    m = mount(run.parent, changing=True)
    shutil.copytree(run, run.parent / "two")
    eventually(lambda: (m / "weights/two/checkpoint-2/model.safetensors").exists())


@pytest.mark.sanitized
def test_a_checkpoint_replaced(made, copied, mount, eventually):
    folder = made("t2", "tied-f1-fp32")
    run = copied(folder / "run")
    m = mount(run, changing=True)
    path = m / "weights/checkpoint-1/model.safetensors"
    old, new = ((folder / f"pretrained-{i}/model.safetensors").read_bytes() for i in (1, 2))
    assert path.read_bytes() == old
    held = os.open(path, os.O_RDONLY)
    shutil.rmtree(run / "checkpoint-1")
    shutil.copytree(folder / "run/checkpoint-2", run / "checkpoint-1")
    eventually(lambda: path.read_bytes() == new if path.exists() else False)
    try:  # what was open goes on with the old bytes, or says that it cannot
        assert os.pread(held, 1 << 20, 0) == old
    except OSError as e:
        assert e.errno == errno.ESTALE
    os.close(held)


@pytest.fixture
def big(tmp_path):
    """A checkpoint too large to be read ahead whole, of which nothing is zero."""
    state = {f"w{i:02}": torch.full((1 << 20,), float(i + 1)) for i in range(16)}
    dist_cp.save({"model": state}, checkpoint_id=tmp_path / "src/ckpt", no_dist=True)
    return tmp_path / "src"


def read_or_errno(fd, n, off):
    try:
        return os.pread(fd, n, off)
    except OSError as e:
        return e.errno


@pytest.mark.sanitized
@pytest.mark.parametrize("harm", ["cut", "rewritten", "gone", "emptied"])
def test_a_shard_harmed_while_mounted_gives_errors_never_wrong_bytes(big, mount, harm):
    m = mount(big, changing=True)
    path = m / "weights/ckpt/model.safetensors"
    size = path.stat().st_size
    fd = os.open(path, os.O_RDONLY)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_RANDOM)
    first = os.pread(fd, 4096, 4096)
    assert first and set(first[:4]) != {0}
    shard = next((big / "ckpt").glob("*.distcp"))
    if harm == "cut":
        os.truncate(shard, shard.stat().st_size // 2)
    elif harm == "emptied":
        os.truncate(shard, 0)
    elif harm == "rewritten":
        with open(shard, "r+b") as f:
            f.seek(shard.stat().st_size // 2)
            f.write(b"\x55" * (1 << 20))
    else:
        shard.unlink()
    failed = 0
    for i in range(16):
        at = size - (i << 22) - 8192
        got = read_or_errno(fd, 4096, at)
        if isinstance(got, int):
            assert got in (errno.ESTALE, errno.EIO)
            failed += 1
        else:
            values = torch.frombuffer(bytearray(got[(-at) % 4:][:4000]), dtype=torch.float32)
            whole = torch.arange(1, 17).float()
            assert torch.isin(values, whole).all() and values.unique().numel() == 1
    assert harm == "gone" or failed >= 15
    os.close(fd)
    if harm != "gone":
        log = (m / ".unshard/errors.log").read_text()
        assert shard.name in log


@pytest.mark.sanitized
def test_a_cut_shard_makes_the_checkpoint_damaged(big, mount, eventually):
    m = mount(big, changing=True)
    assert (m / "weights/ckpt/model.safetensors").exists()
    shard = next((big / "ckpt").glob("*.distcp"))
    os.truncate(shard, shard.stat().st_size // 2)
    eventually(lambda: PROBLEM in os.listdir(m / "weights/ckpt"))
    assert os.listdir(m / "weights/ckpt") == [PROBLEM]
    assert shard.name in (m / f"weights/ckpt/{PROBLEM}").read_text()


DAMAGE = {
    "metadata is not a pickle": lambda c: (c / "pytorch_model_fsdp_0/.metadata").write_bytes(b"x"),
    "metadata cut": lambda c: os.truncate(c / "pytorch_model_fsdp_0/.metadata", 900),
    "shard missing": lambda c: (c / "pytorch_model_fsdp_0/__1_0.distcp").unlink(),
    "shard cut": lambda c: os.truncate(c / "pytorch_model_fsdp_0/__1_0.distcp", 3000),
    "shard is a directory": lambda c: [(c / "pytorch_model_fsdp_0/__1_0.distcp").unlink(),
                                       (c / "pytorch_model_fsdp_0/__1_0.distcp").mkdir()],
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_damaged_ones_say_so_and_hurt_no_neighbour(made, copied, mount, damage):
    folder = made("t2", "tied-f1-fp32")
    run = copied(folder / "run")
    DAMAGE[damage](run / "checkpoint-2")
    m = mount(run)
    assert shown(m, "weights") == ["checkpoint-1", "checkpoint-2"]
    names = os.listdir(m / "weights/checkpoint-2")
    assert PROBLEM in names and not [n for n in names if n.endswith(".safetensors")]
    text = (m / f"weights/checkpoint-2/{PROBLEM}").read_text()
    assert ".metadata" in text or "__1_0.distcp" in text
    assert (m / "weights/checkpoint-1/model.safetensors").read_bytes() == \
        (folder / "pretrained-1/model.safetensors").read_bytes()


def test_weights_are_served_while_the_optimizer_is_broken(made, copied, mount):
    folder = made("t2", "tied-f1-fp32")
    run = copied(folder / "run")
    (run / "checkpoint-2/optimizer_0/.metadata").unlink()
    m = mount(run)
    assert (m / "weights/checkpoint-2/model.safetensors").read_bytes() == \
        (folder / "pretrained-2/model.safetensors").read_bytes()
    assert PROBLEM not in os.listdir(m / "weights/checkpoint-2")


@pytest.mark.sanitized
def test_a_failing_read_names_the_shard(made, copied, mount):
    """A byte of an item's header is wrong: sizes are right, so only reading can find it."""
    folder = made("d2", "fsdp2")
    run = copied(folder / "run")
    for shard in (run / "ckpt").glob("*.distcp"):
        blob = bytearray(shard.read_bytes())
        end = blob.find(b"PK\x05\x06")
        while end >= 0:
            blob[end:end + 4] = b"XXXX"
            end = blob.find(b"PK\x05\x06", end)
        shard.write_bytes(blob)
    m = mount(run)
    with pytest.raises(OSError):
        (m / "weights/ckpt/model.safetensors").read_bytes()
    assert ".distcp" in (m / ".unshard/errors.log").read_text()
