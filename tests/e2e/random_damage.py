"""What may happen to a checkpoint's files between its save and its use, at random: each change from a seed.

A change works on a private copy of a tree, and says what it did and to which files. It knows no format: it swaps,
mixes, truncates, rots, saves again, links, removes, adds and re-orders whatever files are there."""

import io
import json
import os
import random
import shutil
import zipfile
from dataclasses import dataclass, field
from pathlib import Path


@dataclass
class Damage:
    """What was done: the changes in order, each with the files of the checkpoint that it was done to."""

    steps: list = field(default_factory=list)
    words: list = field(default_factory=list)

    @property
    def kinds(self):
        return [kind for kind, _ in self.steps]

    def add(self, kind, *files, words=""):
        self.steps.append((kind, files))
        self.words.append(f"{kind} {' '.join(files)} {words}".strip())

    def __str__(self):
        return "; ".join(self.words)


@dataclass
class Tree:
    """A private copy of a source, and where another save of it is (None: there is none)."""

    top: Path
    checkpoints: list  # directories or files below top that may be changed
    other: Path = None
    outside: Path = None  # a directory next to top, for links that lead out

    def files(self):
        found = []
        for place in self.checkpoints:
            at = self.top / place
            found += [p for p in (at.rglob("*") if at.is_dir() else [at]) if p.is_file() and not p.is_symlink()]
        return sorted(str(p.relative_to(self.top)) for p in found)


CHANGES = {}


def change(weight):
    def register(function):
        CHANGES[function.__name__] = (weight, function)
        return function
    return register


def alike(rng, files):
    """Two files that could be taken for each other, if there are some: of one suffix, or of one size."""
    kind = rng.choice([lambda p: Path(p).suffix, lambda p: (Path(p).parent, Path(p).suffix), lambda p: Path(p).name])
    first = rng.choice(files)
    others = [f for f in files if f != first and kind(f) == kind(first)] or [f for f in files if f != first]
    return (first, rng.choice(others)) if others else None


def rename_round(top, names):
    """Each file gets the name of the next."""
    spare = top / names[0]
    spare = spare.with_name(spare.name + ".spare")
    (top / names[0]).rename(spare)
    for into, name in zip(names, names[1:]):
        (top / name).rename(top / into)
    spare.rename(top / names[-1])


def keep_times(path, function):
    st = path.stat()
    function()
    os.utime(path, ns=(st.st_atime_ns, st.st_mtime_ns))


@change(4)
def swap(rng, tree, done):
    pair = alike(rng, tree.files())
    if pair:
        rename_round(tree.top, pair)
        done.add("swap", *pair)


@change(2)
def reorder(rng, tree, done):
    """Three files or more go round."""
    files = tree.files()
    by = {}
    for f in files:
        by.setdefault(Path(f).suffix, []).append(f)
    of = [v for v in by.values() if len(v) > 2]
    if of:
        names = rng.choice(of)
        names = rng.sample(names, rng.randint(3, min(len(names), 6)))
        rename_round(tree.top, names)
        done.add("reorder", *names)


@change(2)
def copy_over(rng, tree, done):
    pair = alike(rng, tree.files())
    if pair and not (tree.top / pair[0]).samefile(tree.top / pair[1]):
        shutil.copy2(tree.top / pair[0], tree.top / pair[1])
        done.add("copy_over", pair[1], words=f"<- {pair[0]}")


@change(5)
def mix(rng, tree, done):
    """Files of another save."""
    if not tree.other:
        return
    files = [f for f in tree.files() if (tree.other / f).is_file()]
    if files:
        names = rng.sample(files, rng.choice([1, 1, 1, 2, min(3, len(files))]) if len(files) > 1 else 1)
        for name in names:
            (shutil.copy2 if rng.random() < 0.8 else shutil.copy)(tree.other / name, tree.top / name)
        done.add("mix", *names)


@change(3)
def truncate(rng, tree, done):
    name = rng.choice(tree.files())
    size = (tree.top / name).stat().st_size
    if size:
        keep = rng.choice([0, rng.randrange(size), rng.randrange(size), size - 1, size & ~4095])
        keep_times(tree.top / name, lambda: os.truncate(tree.top / name, keep))
        if keep < size:
            done.add("truncate", name, words=f"{keep} of {size}")


@change(2)
def lose_end(rng, tree, done):
    """A copier that reserved the size and died: the end is a hole, or zeros."""
    name = rng.choice(tree.files())
    path = tree.top / name
    size = path.stat().st_size
    if size < 2:
        return
    keep = rng.randrange(size)

    def lose():
        with open(path, "r+b") as f:
            f.truncate(keep)
            if hole:
                f.truncate(size)
            else:
                f.seek(keep)
                f.write(bytes(size - keep))

    before, hole = path.read_bytes(), rng.random() < 0.5
    (keep_times(path, lose) if rng.random() < 0.5 else lose())
    if path.read_bytes() != before:
        done.add("lose_end", name, words=f"{keep} of {size}{' hole' if hole else ''}")


@change(6)
def rot(rng, tree, done):
    """A bit, a byte, or a block that is another file's or another place's."""
    name = rng.choice(tree.files())
    path = tree.top / name
    data = bytearray(path.read_bytes())
    if not data:
        return
    before = bytes(data)
    how = rng.choice(["bit", "bit", "bit", "byte", "zeros", "block"])
    at = rng.randrange(len(data))
    if how == "bit":
        data[at] ^= 1 << rng.randrange(8)
    elif how == "byte":
        data[at] = rng.randrange(256)
    else:
        at &= ~511
        n = min(len(data) - at, 512 * rng.randint(1, 8))
        other = (tree.top / rng.choice(tree.files())).read_bytes()
        data[at:at + n] = bytes(n) if how == "zeros" else other[:n].ljust(n, b"\0")
    if data == before:
        return

    def write():
        with open(path, "r+b") as f:
            f.write(data)

    keep_times(path, write) if rng.random() < 0.7 else write()
    done.add("rot", name, words=f"{how} at {at}")


@change(2)
def shift(rng, tree, done):
    """Bytes put in, left out, or appended."""
    name = rng.choice(tree.files())
    path = tree.top / name
    data = path.read_bytes()
    at, n = rng.randrange(len(data) + 1), rng.choice([1, 7, 64, 4096])
    how = rng.choice(["in", "out", "append"])
    new = {"in": data[:at] + bytes(n) + data[at:], "out": data[:at] + data[at + n:],
           "append": data + rng.choice([bytes(n), data[:n]])}[how]
    if new != data:
        path.write_bytes(new)
        done.add("shift", name, words=f"{how} {n} at {at}")


def zip_again(path):
    """A torch file written again by zipfile: the same records and times, other offsets."""
    with zipfile.ZipFile(path) as old:
        records = [(i.filename, old.read(i)) for i in old.infolist()]
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_STORED) as new:
        for name, content in records:
            new.writestr(name, content)
    return out.getvalue()


@change(2)
def save_again(rng, tree, done):
    """The same content by another writer."""
    name = rng.choice(tree.files())
    path = tree.top / name
    data = path.read_bytes()
    try:
        if path.suffix == ".json":
            new = json.dumps(json.loads(data), indent=rng.choice([None, 1, 4]), sort_keys=rng.random() < 0.5).encode()
        else:
            new = zip_again(path) if path.suffix in (".pt", ".pth", ".bin", ".pkl", ".ckpt") else data
    except Exception:  # pylint: disable=broad-except
        new = data  # damaged before: zipfile raises whatever it meets
    path.unlink()
    path.write_bytes(new)
    done.add("save_again", name, words="the same bytes" if new == data else "")


@change(2)
def link(rng, tree, done):
    """A link in place of a file or a directory: symbolic or hard, to the same content or to another's."""
    name = rng.choice(tree.files())
    path = tree.top / name
    how = rng.choice(["moved", "outside", "hard", "hard other", "other", "dangling", "directory"])
    if how == "directory":
        path = path.parent
        if path == tree.top or path.is_symlink() or str(path.relative_to(tree.top)) in tree.checkpoints:
            return
        name = str(path.relative_to(tree.top))
    away = (tree.outside if how == "outside" else tree.top) / "moved" / path.name
    if away.exists():
        return
    away.parent.mkdir(exist_ok=True)
    other = alike(rng, tree.files())
    if how in ("moved", "outside", "directory"):
        shutil.move(path, away)
        path.symlink_to(os.path.relpath(away, path.parent) if rng.random() < 0.5 else away)
    elif how == "hard":
        os.link(path, away)
    elif how == "dangling":
        path.unlink()
        path.symlink_to("nothing-of-that-name")
    elif other and tree.top / other[0] != path:
        path.unlink()
        (os.link(tree.top / other[0], path) if how == "hard other" else path.symlink_to(tree.top / other[0]))
    else:
        return
    done.add("link", name, words=how)


@change(3)
def remove(rng, tree, done):
    files = tree.files()
    names = rng.sample(files, rng.choice([1, 1, 1, min(2, len(files))]))
    for name in names:
        (tree.top / name).unlink()
    done.add("remove", *names)


@change(1)
def remove_directory(rng, tree, done):
    below = sorted({str(Path(f).parent) for f in tree.files()} - {"."} - set(tree.checkpoints))
    if below:
        name = rng.choice(below)
        shutil.rmtree(tree.top / name)
        done.add("remove_directory", name)


@change(2)
def add(rng, tree, done):
    """A file that does not belong there: a copy under another rank's name, or under any name."""
    name = rng.choice(tree.files())
    path = tree.top / name
    digits = [i for i, ch in enumerate(path.name) if ch.isdigit()]
    if digits and rng.random() < 0.7:
        at = rng.choice(digits)
        new = path.name[:at] + str(rng.randrange(10)) + path.name[at + 1:]
    else:
        new = rng.choice([f"copy of {path.name}", f"{path.name}.1", f".{path.name}.swp", f"{path.stem}(1){path.suffix}"])
    if not (path.parent / new).exists():
        shutil.copy2(path, path.parent / new)
        done.add("add", str((path.parent / new).relative_to(tree.top)), words=f"= {name}")


@change(1)
def rename(rng, tree, done):
    name = rng.choice(tree.files())
    path = tree.top / name
    digits = [i for i, ch in enumerate(path.name) if ch.isdigit()]
    new = path.name.upper() if rng.random() < 0.3 else path.name + ".tmp"
    if digits and rng.random() < 0.6:
        at = rng.choice(digits)
        new = path.name[:at] + str(rng.randrange(10)) + path.name[at + 1:]
    if not (path.parent / new).exists():
        path.rename(path.parent / new)
        done.add("rename", name, words=f"-> {new}")


def damage(rng, tree):
    """One change, sometimes several."""
    done = Damage()
    names = list(CHANGES)
    weights = [CHANGES[n][0] for n in names]
    wanted = rng.choice([1] * 8 + [2, 3])
    for _ in range(20):
        if len(done.kinds) >= wanted or not tree.files():
            break
        CHANGES[rng.choices(names, weights)[0]][1](rng, tree, done)
    return done
