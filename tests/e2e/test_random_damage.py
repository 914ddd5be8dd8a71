"""Random changes to checkpoints: each is found by `check --deep`, or is one that docs/evidence.md lists as not found,
or changes no byte of any view. With a seal each is found, and nothing wrong is shown. A failure names its seed;
`--seed N` tries that one alone."""

import hashlib
import os
import random
import re
import shutil
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from another_save import another_save
from conftest import ROOT
from damage_rows import ROWS, Touched
from random_damage import Tree, damage

sys.path.insert(0, str(ROOT / "python"))
os.environ.setdefault("UNSHARD_LIBRARY", str(ROOT / "build/dev/lib/libunshard.so.0"))
import unshard  # noqa: E402
from unshard.session import Kind  # noqa: E402

GOLDEN = ROOT / "tests/golden"
SEEDS, LONG_SEEDS, BATCHES = 1000, 100000, 4
OFTEN = 1  # so many of them in every round
QUICK = {"truncate", "remove", "remove_directory"}  # a seal finds these without --deep, whatever their times
FOUND_QUICKLY = QUICK | {"swap", "reorder", "copy_over"}

# name -> its tree, and what may be changed in it. A run's own files stay: a seal does not cover them.
SOURCES = {
    "trainer": ("run", ["checkpoint-2"]),
    "megatron": ("dcp/megatron", ["iter_0000010"]),
    "lightning": ("dcp/torch2.2.2_lightning", ["ckpt"]),
    "compressed": ("dcp/zstd", ["ckpt"]),
    "of ranks": ("dcp/ranks", ["ckpt"]),
    "accelerate": ("older/accelerate0.29.3-torch2.2.2_f1_sh_w3/run", ["ckpt"]),
    "fsdp1": ("older/torch2.2.2_fsdp1st_w2_bf16_dcp/run", ["ckpt"]),
    "fsdp2": ("older/torch2.4.1_fsdp2_w2_fp32_dcp/run", ["ckpt"]),
    "older trainer": ("older/transformers4.46.3-torch2.4.1_f1_sh_w2/run", ["ckpt"]),
    "ranks, fsdp2": ("ranks", ["fsdp2"]),
    "ranks, fsdp1": ("ranks", ["orig"]),
    "ranks, torch 2.0": ("rank_files", ["torch2.0.1"]),
    "ranks, torch 2.1": ("rank_files", ["torch2.1.2"]),
    "stage 0": ("zero/z0_w1", ["global_step2"]),
    "stage 1": ("zero/z1_bf16_optimizer_w2", ["global_step2"]),
    "stage 2": ("zero/z2_w3", ["global_step2"]),
    "stage 3": ("zero/z3_w2", ["global_step2"]),
    "universal": ("zero/z2_w3", ["global_step2_universal"]),
    "safetensors": (None, ["model"]),
    "unsharded": (None, ["full"]),
}


def key(finding):
    return finding.id, finding.file, finding.tensor, finding.rank, finding.text


@dataclass
class Look:
    """What check and the views say of a source."""

    findings: list = field(default_factory=list)
    states: list = field(default_factory=list)
    shown: dict = field(default_factory=dict)


def walk(session, path, shown):
    try:
        entries = session.list(path)
    except OSError as e:
        shown[path] = f"error {e.errno}"
        return
    for e in entries:
        inside = f"{path}/{e.name}".lstrip("/")
        if e.name == ".unshard":
            continue
        if e.stat.kind is Kind.DIRECTORY:
            walk(session, inside, shown)
        elif e.stat.kind is Kind.FILE:
            try:
                shown[inside] = hashlib.blake2b(session.read(inside), digest_size=16).hexdigest()
            except OSError as e:
                shown[inside] = f"error {e.errno}"


def look(top, deep=True, views=False, **options):
    with unshard.open(top, store=None, settle_seconds=0, **options) as session:
        found = Look(session.check(deep=deep), [(c.path, c.state) for c in session.checkpoints()])
        if views:
            walk(session, "", found.shown)
    return found


class Source:
    """A tree as it was saved, another save of it, its seals, and what check and the views say of it."""

    def __init__(self, name, base):
        folder, self.places = SOURCES[name]
        self.top = base / "as saved"
        self.seals = base / "seals"
        base.mkdir()
        if folder:
            self.copy(GOLDEN / folder, self.top)
            for expected in self.top.glob("torch2.*/model.safetensors"):
                expected.unlink()
        else:
            self.make(name)
        self.other = another_save(self.top, base / "other")
        with unshard.open(self.top, store=None, settle_seconds=0, seals=self.seals) as session:
            self.sealed = [s.path for s in session.seal() if s.state == "sealed"]
        self.plain = look(self.top, views=True)
        self.with_seal = look(self.top, seals=self.seals)
        self.quick = look(self.top, deep=False, seals=self.seals)

    def copy(self, source, to):
        to.mkdir()
        for entry in source.iterdir():
            if entry.name in self.places:
                (shutil.copytree if entry.is_dir() else shutil.copy2)(entry, to / entry.name)
            elif entry.is_file():
                shutil.copy2(entry, to / entry.name)

    def make(self, name):
        """Directories that are not sharded: views of the golden run, written by export."""
        with unshard.open(GOLDEN / "run", store=None, settle_seconds=0, max_shard_size_bytes=20000) as session:
            self.top.mkdir()
            view = "weights" if name == "safetensors" else "full"
            session.export("checkpoint-2", self.top / self.places[0], view)

    def findings_besides(self, now, before):
        known = {key(f) for f in before.findings}
        return [f for f in now.findings if key(f) not in known]


# Files that no other file of the checkpoint names: a trainer may have left them out.
UNNAMED = re.compile(r"meta\.pt|optim_world_size|custom_checkpoint|trainer_state|scheduler|generation_config|tokenizer|"
                     r"special_tokens|chat_template|config\.json|random_states|rng_state|.*\.py|(frozen\.weight|calls|mean)$")


def touched(done, source, tree):
    """Each file that is not what it was, with the kinds of changes that were made to it."""
    by_name = {}
    for kind, names in done.steps:
        for name in names:
            by_name.setdefault(name, set()).add(kind)
    for name, kinds in by_name.items():
        before, now = source.top / name, tree.top / name
        if not (before.is_file() and now.is_file() and before.read_bytes() == now.read_bytes()) or "link" in kinds:
            yield Touched(name, kinds, before, now, not (UNNAMED.match(Path(name).name) or UNNAMED.match(Path(name).parent.name)))


class Trial:
    """One seed."""

    def __init__(self, seed, sources, base):
        self.rng = random.Random(seed)
        self.name = self.rng.choice(list(SOURCES))
        if self.name not in sources:
            sources[self.name] = Source(self.name, base / re.sub(r"\W", "_", self.name))
        self.source = sources[self.name]
        self.place = base / "now"
        shutil.rmtree(self.place, ignore_errors=True)
        (self.place / "outside").mkdir(parents=True)
        shutil.copytree(self.source.top, self.place / "source", symlinks=True)
        self.tree = Tree(self.place / "source", self.source.places, self.source.other, self.place / "outside")
        self.done = damage(self.rng, self.tree)

    def unsealed(self):
        """-> what became of the change."""
        now = look(self.tree.top)
        if self.source.findings_besides(now, self.source.plain):
            return "found"
        if now.states != self.source.plain.states:
            return "listed otherwise"
        now = look(self.tree.top, views=True)
        if now.shown == self.source.plain.shown:
            return "nothing shown otherwise"
        silent = [t.name for t in touched(self.done, self.source, self.tree)
                  if not any(holds(t) for holds in ROWS.values())]
        silent = [name for name in silent if self.changes_what_is_shown(name, now)]
        differ = sorted(p for p in {*now.shown, *self.source.plain.shown}
                        if now.shown.get(p) != self.source.plain.shown.get(p))
        assert not silent, (silent, differ[:5])
        return "listed in the documents"

    def changes_what_is_shown(self, name, now):
        """What others of several changes did is shown also with this one put right."""
        top = self.place / "put right"
        shutil.copytree(self.tree.top, top, symlinks=True)
        before, path = self.source.top / name, top / name
        if path.is_symlink() or path.is_file():
            path.unlink()
        elif path.is_dir():
            shutil.rmtree(path)
        if before.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            (shutil.copytree if before.is_dir() else shutil.copy2)(before, path)
        return look(top, views=True).shown != now.shown

    def content(self, top):
        return {str(p.relative_to(top)): p.read_bytes() for place in self.source.sealed
                for folder, _, names in os.walk(top / place, followlinks=True)
                for p in (Path(folder) / n for n in names)
                if p.is_file() and (p.resolve().is_relative_to(top) or (self.source.top / p.relative_to(top)).exists())}

    def with_seal(self):
        """Everything is found. What is found quickly is shown in no view."""
        now = look(self.tree.top, seals=self.source.seals)
        new = self.source.findings_besides(now, self.source.with_seal)
        if self.content(self.tree.top) == self.content(self.source.top):
            return "the same content"
        assert new or now.states != self.source.with_seal.states
        with unshard.open(self.tree.top, store=None, settle_seconds=0, seals=self.source.seals) as session:
            return self.quickly(session)

    def quickly(self, session):
        quick = Look(session.check(), [(c.path, c.state) for c in session.checkpoints()])
        by_seal = [f for f in self.source.findings_besides(quick, self.source.quick) if f.check == "seal"]
        problems = [f for f in by_seal if f.severity == "problem"]
        if set(self.done.kinds) <= FOUND_QUICKLY:
            assert problems or quick.states != self.source.quick.states
        if problems:
            walk(session, "", quick.shown)
            wrong = [p for p, v in quick.shown.items() if v != self.source.plain.shown.get(p, v)
                     and not v.startswith("error") and set(Path(p).parts) & set(self.source.places)]
            assert not wrong or set(self.done.kinds) - FOUND_QUICKLY, wrong[:5]
        return "found quickly" if problems else "found"


def run(seeds, base, sources):
    counts, failed = Counter(), []
    for seed in seeds:
        trial = Trial(seed, sources, base)
        if not trial.done.kinds:
            counts["no change"] += 1
            continue
        for judge in (trial.unsealed, trial.with_seal):
            try:
                counts[judge.__name__, judge()] += 1
            except Exception as e:  # pylint: disable=broad-except
                failed.append(f"--seed {seed}: {trial.name}: {trial.done}: {judge.__name__}: {type(e).__name__} {e}")
    return counts, failed


def seeds_of(batch, long):
    n = LONG_SEEDS if long else SEEDS
    return range(batch, n, BATCHES)


@pytest.fixture(scope="module")
def base():
    """In memory where there is such a place: a disk would take most of the time to make and remove small files."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if os.access(memory, os.W_OK) else None) as folder:
        yield Path(folder)


@pytest.fixture(scope="module")
def sources():
    """Those that were made before, by name."""
    return {}


@pytest.mark.parametrize("batch", [pytest.param(i, marks=pytest.mark.long if i >= OFTEN else []) for i in range(BATCHES)])
def test_random_damage(batch, request, base, sources):
    one = request.config.getoption("--seed")
    if one and one[0] % BATCHES != batch:
        return
    counts, failed = run(one or seeds_of(batch, request.config.getoption("--long")), base, sources)
    assert not failed, f"{len(failed)} changes were not found; {dict(counts)}\n" + "\n".join(failed[:20])
    if not one:
        assert counts["unsealed", "found"] > 100 and counts["with_seal", "found quickly"] > 50, counts


def test_the_documents_list_what_is_not_found():
    text = (ROOT / "docs/evidence.md").read_text()
    section = text.split("## What check does not find without a seal")[1].split("\n## ")[0]
    rows = [line for line in section.splitlines() if line.startswith("| ")][1:]
    for row in ROWS:
        assert any(line.lower().startswith(f"| {row.lower()}") for line in rows), row
    assert len(rows) == len(ROWS)
