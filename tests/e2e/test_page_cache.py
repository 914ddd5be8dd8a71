"""Which pages the kernel holds when files of a mount have been read: SOURCE's, the mount's, or both (-o cache=). Pages are
counted by cachestat(2)."""

import concurrent.futures
import mmap
import os
import sys
from pathlib import Path

import pytest
import safetensors.torch
import torch
import torch.distributed.checkpoint as dist_cp

sys.path.insert(0, str(Path(__file__).parents[1] / "bench"))
import checkpoints  # noqa: E402
import pages  # noqa: E402

from conftest import LAUNCHER, MAKE, eventually, serving  # noqa: E402

MiB = 1 << 20
TENSORS, BYTES = 6, 8 * MiB
WEIGHTS = "weights/ckpt/model.safetensors"
PAGES_OF_HEADERS = 2 * MiB
ALMOST = TENSORS * BYTES * 3 // 4  # the kernel may take a page whenever it wants to
WORKERS = 8
MADE = {f"t{i}": torch.arange(i, i + BYTES // 4, dtype=torch.int32) for i in range(TENSORS)}


@pytest.fixture(scope="module")
def paged(tmp_path_factory):
    """One checkpoint of one shard, whose pages the kernel can let go of."""
    src = tmp_path_factory.mktemp("paged")
    dist_cp.save({"model": MADE}, checkpoint_id=src / "ckpt", no_dist=True)
    try:
        forget(src)
        if held(src) > PAGES_OF_HEADERS:
            pytest.skip("this file system keeps its files in memory alone")
    except OSError as e:
        pytest.skip(str(e))
    return src


@pytest.fixture
def source(paged):
    """A mount of it that an earlier test has left may let go of its pages until it has ended."""
    eventually(lambda: not serving(paged))
    return paged


def shards(source):
    return sorted(source.rglob("*.distcp")) + sorted(source.rglob("*.pt"))


def forget(source):
    for path in shards(source):
        pages.drop(path)


def held(source):
    return sum(map(pages.cached_bytes, shards(source)))


def by_read(path):
    return path.read_bytes()


def by_map(path):
    with open(path, "rb") as f, mmap.mmap(f.fileno(), 0, prot=mmap.PROT_READ) as mapped:
        return bytes(mapped)


def around_the_cache(path):
    fd = os.open(path, os.O_RDONLY | os.O_DIRECT)
    size = os.fstat(fd).st_size
    with mmap.mmap(-1, -(-size // MiB) * MiB) as room:
        for at in range(0, size, MiB):
            os.preadv(fd, [memoryview(room)[at:at + MiB]], at)
        os.close(fd)
        return room[:size]


def assert_made(data):
    found = safetensors.torch.load(data)
    assert found.keys() == MADE.keys()
    assert all(torch.equal(found[name], MADE[name]) for name in MADE)


@pytest.mark.parametrize("read", [by_read, by_map])
@pytest.mark.parametrize("cache", ["both", "mount", "sources"])
def test_pages_are_held_once_or_twice(source, mount, eventually, cache, read):
    m = mount(source, f"cache={cache}")
    forget(source)
    assert_made(read(m / WEIGHTS))
    of_mount = pages.cached_bytes(m / WEIGHTS) if cache != "sources" else 0
    if cache == "mount":
        eventually(lambda: held(source) <= PAGES_OF_HEADERS)
    else:
        assert held(source) >= ALMOST
    if cache == "sources":
        eventually(lambda: pages.cached_bytes(m / WEIGHTS) == 0)
    else:
        assert of_mount >= ALMOST
    assert_made(read(m / WEIGHTS))


def test_what_is_read_around_the_mounts_pages_stays_with_the_sources(source, mount):
    m = mount(source, "cache=mount")
    forget(source)
    assert_made(around_the_cache(m / WEIGHTS))
    assert held(source) >= ALMOST


def test_pages_stay_as_long_as_somebody_has_the_file_open(source, mount, eventually):
    m = mount(source, "cache=sources")
    with open(m / WEIGHTS, "rb") as f, mmap.mmap(f.fileno(), 0, prot=mmap.PROT_READ) as mapped:
        assert_made(by_read(m / WEIGHTS))
        assert_made(mapped[:])
        assert pages.cached_bytes(m / WEIGHTS) >= ALMOST
    eventually(lambda: pages.cached_bytes(m / WEIGHTS) == 0)


def test_opened_again_and_again_while_its_pages_go(source, mount):
    m = mount(source, "cache=sources")
    with concurrent.futures.ThreadPoolExecutor(8) as threads:
        for data in threads.map(lambda i: (by_map if i % 2 else by_read)(m / WEIGHTS), range(24)):
            assert_made(data)


def read_from_storage(pid):
    lines = Path(f"/proc/{pid}/io").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("read_bytes:"))


@pytest.mark.parametrize("cache", ["mount", "sources"])
def test_eight_processes_map_one_file(source, mount, cache):
    """Each byte comes from storage once: the best of three rounds, as below."""
    m = mount(source, f"cache={cache}")
    expected = sorted(f"{name} {rank} {part.sum().item()}" for name, tensor in MADE.items()
                      for rank, part in enumerate(tensor.chunk(WORKERS)))
    took = []
    while len(took) < 3 and not any(n <= TENSORS * BYTES * 1.1 + PAGES_OF_HEADERS for n in took):
        pages.drop(m / WEIGHTS)
        forget(source)
        before = read_from_storage(m.pid())
        failed, said = LAUNCHER.ask(MAKE / "map_one_file.py", [m / WEIGHTS, WORKERS], 0, {})
        assert failed == "0" and sorted(said.splitlines()) == expected, said
        took.append(read_from_storage(m.pid()) - before)
    assert min(took) <= TENSORS * BYTES * 1.1 + PAGES_OF_HEADERS, took


def read_in_turn(paths):
    """A part of each file after the other -> the bytes of each."""
    open_files = [open(path, "rb", buffering=0) for path in paths]
    got = [b""] * len(paths)
    while any(parts := [f.read(MiB) for f in open_files]):
        got = [a + b for a, b in zip(got, parts)]
    for f in open_files:
        f.close()
    return got


def test_ranks_files_read_at_once_take_no_pages_from_each_other(tmp_path, source, mount):
    """world-4 of two ranks: four files out of the same shards, each byte from storage once. The best of three rounds: a
    busy machine takes a page now and then, which the next round need not; the mount would take them in each (at least
    1.2 times, where pages beside those that were read went too)."""
    checkpoints.write_rank_files(tmp_path / "run/global_step_1/actor", *checkpoints.llama(48e6), 2)
    m = mount(tmp_path / "run", "cache=mount")
    files = [m / f"world-4/global_step_1/actor/model_world_size_4_rank_{rank}.pt" for rank in range(4)]
    expected, took = [by_read(path) for path in files], []
    stored = sum(path.stat().st_size for path in shards(tmp_path / "run"))
    while len(took) < 3 and not any(n <= stored * 1.1 + PAGES_OF_HEADERS for n in took):
        for path in files:
            pages.drop(path)
        forget(tmp_path / "run")
        before = read_from_storage(m.pid())
        assert read_in_turn(files) == expected
        took.append(read_from_storage(m.pid()) - before)
    assert min(took) <= stored * 1.1 + PAGES_OF_HEADERS, took
