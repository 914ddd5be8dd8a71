"""Random checkpoints of every family through every view, against what was saved and what the frameworks' own
readers make of it. A failure names its seed; `--seed N` makes and compares that one alone."""

import contextlib
import json
import random
import re
import shutil
from collections import Counter

import pytest
import torch

import conftest
import random_dcp
import random_ranks
import random_zero
import trees
from random_truth import Refused, flat

FAMILIES = {"plain": random_dcp.plain, "trainer": random_dcp.trainer, "lightning": random_dcp.lightning,
            "dtensors": random_ranks.dtensors, "flat": random_ranks.flat_units, "engine": random_zero.engine}
SEEDS, LONG_SEEDS = 100, 10000
BATCH = 50  # below one source
# What is compared at least once. Other views are refused, for a reason that the generator foresees.
WEIGHTS = ["weights", "weights-bf16", "weights-fp16", "weights-fp32"]
TRAINING = ["full", "full-fsdp", "universal"]
VIEWS = {"plain": ["adapter", *WEIGHTS, *TRAINING, "dcp"], "trainer": ["adapter", *WEIGHTS, *TRAINING, "dcp"],
         "lightning": [*WEIGHTS, *TRAINING, "dcp"], "dtensors": ["adapter", *WEIGHTS, *TRAINING, "world-N"],
         "flat": [*WEIGHTS, *TRAINING],
         "engine": ["adapter", *WEIGHTS, *TRAINING, "dcp", "world-N"]}


def made(seed, base):
    family = list(FAMILIES)[seed % len(FAMILIES)]
    t = FAMILIES[family](random.Random(seed), base, f"{family}{seed}")
    t.family, t.seed = family, seed
    return t


def is_same(got, want, rounded):
    if not torch.is_tensor(want) or not torch.is_tensor(got):
        return type(got) is type(want) and got == want
    if got.dtype != want.dtype or got.shape != want.shape:
        return False
    if rounded and want.is_floating_point():
        nan = want.float().isnan()
        if not torch.equal(got.float().isnan(), nan):
            return False
        got, want = got[~nan], want[~nan]
    return torch.equal(trees.bits(got), trees.bits(want))


def differences(got, want, rounded=False):
    """Paths of what is not the same, or there in one alone."""
    got, want = dict(flat(got)), dict(flat(want))
    return [path for path in {**got, **want}
            if path not in got or path not in want or not is_same(got[path], want[path], rounded)]


def assert_as_saved(t):
    """The framework's own reader says of the files what they were made of."""
    if t.as_saved:
        assert not differences(*t.as_saved(t)), t.seed


def place(mnt, view, t):
    """Where the view shows it: a Lightning checkpoint may be one file, and a directory beside it."""
    path = mnt / view / t.where
    return path.with_suffix("") if path.is_file() and view.startswith("weights") else path


def listed(view):
    return "world-N" if view.startswith("world-") else view


def compare(mnt, t, seen):
    """Every view that the mount names, and that there are these."""
    views = t.views(t)
    info = json.loads((place(mnt, "weights", t) / ".unshard/info.json").read_text())["views"]
    assert set(info) == {listed(view) for view in views}, t.seed
    for view, expected in views.items():
        why = info[listed(view)]["why"]
        if isinstance(expected, Refused):
            assert why and re.search(expected, why), (t.seed, view, why)
            continue
        assert why is None, (t.seed, view, why)
        wrong = differences(expected.read(place(mnt, view, t)), expected.wanted, expected.rounded)
        assert not wrong, f"seed {t.seed}, {t.family}, {t.world} ranks, view {view}: {wrong[:5]}"
        seen[t.family, listed(view)] += 1


@contextlib.contextmanager
def mounted(source, mnt, truths):
    """Of what the files do not say, the store has it: unit maps."""
    mnt.mkdir()
    store = source.parent / "store.db"
    for t in truths:
        if hasattr(t, "unit_map"):
            file = source.parent / f"{t.seed}.json"
            file.write_text(json.dumps(t.unit_map))
            conftest.unshard("meta", "import", t.source, file, "--store", store)
    conftest.unshard("mount", source, mnt, "-o", f"settle=0,store={store if store.exists() else 'none'}")
    try:
        yield mnt
    finally:
        conftest.detach(mnt)


def run(seeds, base, seen):
    """Makes them below one source, and compares each through one mount of it."""
    truths = [made(seed, base / "source") for seed in seeds]
    for t in truths:
        assert_as_saved(t)
    with mounted(base / "source", base / "mnt", truths) as mnt:
        for t in truths:
            compare(mnt, t, seen)
    shutil.rmtree(base, ignore_errors=True)  # a daemon that ends may still remove the files beside its store


def run_all(seeds, base):
    """-> (family, view) -> how many were compared."""
    seen = Counter()
    for i in range(0, len(seeds), BATCH):
        batch = seeds[i:i + BATCH]
        print(f"seeds {batch[0]} to {batch[-1]}", flush=True)
        run(batch, base / str(i), seen)
    for pair, n in sorted(seen.items()):
        print(*pair, n)
    return seen


def test_random_checkpoints(tmp_path, request):
    seeds = request.config.getoption("--seed")
    seen = run_all(seeds or range(SEEDS), tmp_path)
    assert seeds or set(seen) == {(f, v) for f, views in VIEWS.items() for v in views}


@pytest.mark.long
def test_many_random_checkpoints(tmp_path):
    run_all(range(SEEDS, LONG_SEEDS), tmp_path)


@pytest.mark.parametrize("stage", [1, 2])
@pytest.mark.parametrize("version", ["0.12.6", "0.19.8"])
@pytest.mark.parametrize("world", [1, 2, 40])
def test_parameters_are_dealt_out_to_other_ranks_however_many_there_were(tmp_path, stage, version, world):
    """With no more parameters than ranks, or on one, round_robin_gradients changes nothing that could be seen."""
    fixed = {"stage": stage, "version": version, "world": world, "other": 2, "fp32_grads": False, "aligned": False,
             "round_robin": True, "sub_group_size": None}
    t = random_zero.engine(random.Random(3), tmp_path / "source", "run", **fixed)
    assert max(len(g["params"]) for g in t.groups) > 2
    t.family, t.seed = "engine", "fixed"
    with mounted(tmp_path / "source", tmp_path / "mnt", [t]) as mnt:
        compare(mnt, t, Counter())
