"""Memory and time stay those of the metadata, whatever the size of the model and of the runs."""

import json
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from torch.distributed.checkpoint import FileSystemReader

from conftest import LONGEST_S

sys.path.insert(0, str(Path(__file__).parent / "make"))
import sparse_dcp  # noqa: E402

GOLDEN = Path(__file__).resolve().parents[1] / "golden"
LIMIT_BYTES = 200 * 1000 * 1000
RANKS = 32


@pytest.fixture(scope="session")
def llama_70b(tmp_path_factory):
    """140 GB in 23,136 items on 32 ranks; nearly all of it holes."""
    source = tmp_path_factory.mktemp("sparse")
    assert sparse_dcp.write(source / "ckpt", sparse_dcp.llama_70b(), RANKS) == 723 * RANKS
    return source


def header(path):
    with open(path, "rb") as f:
        length = int.from_bytes(f.read(8), "little")
        found = json.loads(f.read(length))
    found.pop("__metadata__")
    return 8 + length, found


def check_marks(folder, names, ranks=RANKS):
    """The first bytes of every rank's chunk are where they belong."""
    where = json.loads((folder / "model.safetensors.index.json").read_text())["weight_map"]
    shapes = sparse_dcp.llama_70b()
    for name in names:
        start, tensors = header(folder / where[name])
        rows = -(-shapes[name][0] // ranks)
        row_bytes = 2 * (shapes[name][1] if len(shapes[name]) > 1 else 1)
        with open(folder / where[name], "rb", buffering=0) as f:
            for rank in range(ranks):
                f.seek(start + tensors[name]["data_offsets"][0] + rank * rows * row_bytes)
                assert f.read(16) == sparse_dcp.mark(name, rank), (name, rank)


def test_70b_first_byte_after_a_glance(llama_70b, mount):
    """Of 23,136 items those of one tensor are looked at, in fewer reads than a second has milliseconds,
    and with less work than torch has with the metadata alone."""
    began = time.process_time()
    FileSystemReader(llama_70b / "ckpt").read_metadata()
    work = time.process_time() - began
    m = mount(llama_70b, "store=none")
    folder = m / "weights/ckpt"
    shards = sorted(n for n in os.listdir(folder) if n.endswith(".safetensors"))
    with open(folder / shards[0], "rb", buffering=0) as f:
        length = int.from_bytes(f.read(8), "little")
        f.seek(8 + length)
        assert any(f.read(16))
    stats = json.loads((m / ".unshard/stats.json").read_text())
    assert stats["items_resolved"] == RANKS and stats["source_reads"] <= 4 * RANKS
    assert stats["source_read_bytes"] < 1_000_000
    assert m.cpu_seconds() < work
    assert len(shards) == 3 and m.rss_bytes() < LIMIT_BYTES


def test_70b_memory_and_places(llama_70b, mount):
    m = mount(llama_70b)
    folder = m / "weights/ckpt"
    total = sum((folder / n).stat().st_size for n in os.listdir(folder))
    assert 141e9 < total < 142e9
    names = list(sparse_dcp.llama_70b())
    check_marks(folder, names[:12] + names[300:320] + names[-3:])
    for _ in subprocess.run(["find", m], capture_output=True, text=True).stdout.splitlines():
        pass
    assert m.rss_bytes() < LIMIT_BYTES, f"{m.rss_bytes() / 1e6:.0f} MB"


def test_peak_memory_in_proportion_to_the_metadata(mount, tmp_path):
    """With nothing remembered: the file itself, what it says, and the catalog."""
    items = sparse_dcp.write(tmp_path / "src/ckpt", sparse_dcp.llama_70b(), RANKS, states=("exp_avg", "exp_avg_sq"))
    assert items == 3 * 723 * RANKS
    m = mount(tmp_path / "src", "store=none")
    assert json.loads((m / "weights/ckpt/model.safetensors.index.json").read_text())["weight_map"]
    times = m.rss_bytes() / (tmp_path / "src/ckpt/.metadata").stat().st_size
    assert times < 3, f"{times:.2f} times the size of .metadata"


@pytest.mark.long
def test_70b_memory_with_every_item_touched(llama_70b, mount):
    m = mount(llama_70b)
    check_marks(m / "weights/ckpt", list(sparse_dcp.llama_70b()))
    assert m.rss_bytes() < LIMIT_BYTES, f"{m.rss_bytes() / 1e6:.0f} MB"


def test_show_of_a_70b_is_one_screen(llama_70b, command):
    def said(*options):
        return command("show", "--store", "none", *options, llama_70b / "ckpt").stdout

    names = sparse_dcp.llama_70b()
    folded, all_of_them, some = said(), said("--tensors"), said("--tensors=*.layers.7.*")
    assert len(folded.splitlines()) < 40 and re.search(rf"model\.layers\.\* +{len(names) - 3} +bfloat16 +-\n", folded)
    listed = [line.split()[0] for line in all_of_them.splitlines() if ".distcp" in line]
    assert sorted(listed) == sorted(names)
    assert {line.split()[0] for line in some.splitlines() if ".distcp" in line} == {n for n in names if ".layers.7." in n}


def test_items_and_offsets_above_4_gib(mount, tmp_path):
    shapes = {"big": (3_000_000_000,), "after": (8,)}
    sparse_dcp.write(tmp_path / "src/ckpt", shapes, 1)
    path = mount(tmp_path / "src", "max_shard_size=50GB") / "weights/ckpt/model.safetensors"
    start, tensors = header(path)
    with open(path, "rb", buffering=0) as f:
        for name in shapes:
            begin, end = tensors[name]["data_offsets"]
            f.seek(start + begin)
            assert f.read(16) == sparse_dcp.mark(name, 0)
            assert end - begin == 2 * shapes[name][0]
        f.seek(start + tensors["big"]["data_offsets"][1] - 8)
        assert f.read(8) == bytes(8)


def found(m):
    """What find knows of all that is below the mount, whatever the order."""
    done = subprocess.run(["find", ".", "-printf", r"%p %y %s %m %U %T@ %i\n"], cwd=m, capture_output=True, text=True,
                          timeout=LONGEST_S, check=True)
    return sorted(done.stdout.splitlines())


def stats(m):
    return json.loads((m / ".unshard/stats.json").read_text())


def opened(m):
    return stats(m)["catalogs_opened"]


def test_many_checkpoints_in_little_memory(mount, tmp_path, faults):
    """A find opens each of them to know whether the first view shows it, and once more for what all the views show;
    after that listings open none. One that changes is looked at again."""
    many = 100
    shutil.copytree(GOLDEN / "run", tmp_path / "src")
    for step in range(3, many + 2):
        shutil.copytree(tmp_path / "src/checkpoint-2", tmp_path / f"src/checkpoint-{step}")
    want = found(mount(tmp_path / "src", "store=none", changing=True))
    m = mount(tmp_path / "src", "store=none", "mem=2M", faults=faults, changing=True)
    assert found(m) == want and many < opened(m) <= 2 * many
    before = opened(m)
    faults.pass_time(2)
    subprocess.run(["ls", "-lR", m], stdout=subprocess.DEVNULL, timeout=LONGEST_S, check=True)
    assert found(m) == want and opened(m) == before
    (tmp_path / "src/checkpoint-7/notes.txt").write_text("changed")
    faults.pass_time(2)
    changed = {line.split()[0] for line in found(m) if line not in want}
    assert "./dcp/checkpoint-7/notes.txt" in changed and "./weights/checkpoint-7/model.safetensors" in changed
    assert all("/checkpoint-7" in path for path in changed) and opened(m) <= before + 2


def resident(m):
    """At this moment, in bytes."""
    status = Path(f"/proc/{m.pid()}/status").read_text()
    return int(re.search(r"VmRSS:\s+(\d+)", status).group(1)) * 1024


def notes(source, directories):
    """Directories with a thousand files each."""
    for d in range(directories):
        (source / f"notes-{d}").mkdir(parents=True)
        for i in range(1000):
            (source / f"notes-{d}/file-{i}.txt").touch()


def walked(top):
    """How many entries find looks at."""
    done = subprocess.run(["find", top, "-printf", r"%s\n"], capture_output=True, text=True, timeout=LONGEST_S, check=True)
    return done.stdout.count("\n")


def test_an_idle_mount_gives_memory_back(mount, tmp_path, faults, eventually):
    """The kernel forgets files that no one has open; what a program holds, or where it is, stays as it was."""
    notes(tmp_path / "src", 20)
    (tmp_path / "src/notes-7/file-7.txt").write_text("held")
    m = mount(tmp_path / "src", "store=none", faults=faults)
    before = resident(m)
    with open(m / "weights/notes-7/file-7.txt") as held:
        program = subprocess.Popen(["sh", "-c", "read line; pwd -P; cat file-7.txt"], cwd=m / "weights/notes-7", text=True,
                                   stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert walked(m / "weights") == 20 * 1001 + 1
        grown = resident(m) - before
        assert grown > 20_000 * 100
        faults.pass_time(61)
        eventually(lambda: resident(m) < before + grown / 2)
        assert held.read() == "held" and os.fstat(held.fileno()).st_size == 4
        assert program.communicate("\n")[0] == f"{m}/weights/notes-7\nheld"
    assert walked(m / "weights") == 20 * 1001 + 1


@pytest.mark.long
def test_a_million_entries_and_a_rest(mount, tmp_path, faults, eventually):
    notes(tmp_path / "src", 111)
    m = mount(tmp_path / "src", "store=none", faults=faults)
    assert walked(m) > 1_000_000 and resident(m) > 200_000_000
    faults.pass_time(61)
    eventually(lambda: resident(m) < 60_000_000)


def linked(run, many):
    """A run of so many checkpoints, which share the bytes of their files."""
    shutil.copytree(GOLDEN / "run", run)
    for step in range(3, many + 2):
        shutil.copytree(run / "checkpoint-2", run / f"checkpoint-{step}", copy_function=os.link)


def test_checkpoints_that_rest_are_not_held(mount, tmp_path, faults, eventually):
    """After a minute without a request their catalogs go, but for an eighth of what may be held. The next read is as
    before."""
    linked(tmp_path / "src", 60)
    m = mount(tmp_path / "src", "store=none", "mem=4M", faults=faults, changing=True)
    shown = m / "weights/checkpoint-9/model.safetensors"
    want = shown.read_bytes()
    assert walked(m) > 6_000
    held = stats(m)["snapshot_bytes"]
    assert held > 1 << 19

    def rested():
        """To look at the figures is a request: the minute begins again."""
        faults.pass_time(61)
        time.sleep(2)
        return stats(m)["snapshot_bytes"] < held / 2

    eventually(rested)
    assert shown.read_bytes() == want


@pytest.mark.long
def test_3000_checkpoints_walked_and_a_rest(mount, tmp_path, faults, eventually):
    """What stays is mostly a node for each of the 69,000 directories."""
    linked(tmp_path / "src", 3000)
    m = mount(tmp_path / "src", "store=none", faults=faults, changing=True)
    for _ in range(2):
        assert walked(m) > 300_000
    grown = resident(m)
    faults.pass_time(61)
    eventually(lambda: resident(m) < min(150_000_000, grown * 2 / 3))


def test_ls_of_a_thousand_checkpoints(made, mount, tmp_path):
    case = made("t2", "tied-f1-fp32")
    original = tmp_path / "original"  # a link more changes a file's ctime, and other tests read those of `case` meanwhile
    shutil.copytree(case / "run/checkpoint-2", original)
    files = [p.relative_to(original) for p in original.rglob("*") if p.is_file()]
    for run in range(20):
        for step in range(1, 51):
            target = tmp_path / f"runs/run-{run}/checkpoint-{step}"
            for name in files:
                (target / name).parent.mkdir(parents=True, exist_ok=True)
                os.link(original / name, target / name)
        (tmp_path / f"runs/run-{run}/config.json").write_bytes(
            (case / "run/config.json").read_bytes())
    m = mount(tmp_path / "runs", changing=True)
    done = subprocess.run(["ls", "-lR", m / "weights"], capture_output=True, text=True, timeout=LONGEST_S)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("model.safetensors") == 1000
    assert m.rss_bytes() < LIMIT_BYTES, f"{m.rss_bytes() / 1e6:.0f} MB"
    got = (m / "weights/run-7/checkpoint-33/model.safetensors").read_bytes()
    assert got == (case / "pretrained-2/model.safetensors").read_bytes()
