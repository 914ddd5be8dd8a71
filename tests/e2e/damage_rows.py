"""What docs/evidence.md says that `unshard check --deep` does not find without a seal, as conditions on a change."""

import contextlib
import io
import json
import warnings
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from torch.distributed.checkpoint import FileSystemReader
from torch.distributed.checkpoint._extension import ZStandard

JSON = ".json"
TORCH = (".pt", ".pth", ".bin", ".pkl", ".ckpt")


def load(path):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.load(path, map_location="cpu", weights_only=False)


def records(path):
    """What torch reads of a file before it makes objects of it, which wrappers need a process group for."""
    reader = torch._C.PyTorchFileReader(str(path))
    return {name.split("/", 1)[-1]: reader.get_record(name) for name in reader.get_all_records()}


def equal(a, b):
    if torch.is_tensor(a):
        return torch.is_tensor(b) and a.dtype == b.dtype and a.shape == b.shape and \
            a.contiguous().view(-1).view(torch.uint8).equal(b.contiguous().view(-1).view(torch.uint8))
    if isinstance(a, dict):
        return isinstance(b, dict) and list(a) == list(b) and all(equal(a[k], b[k]) for k in a)
    if isinstance(a, (list, tuple)):
        return type(a) is type(b) and len(a) == len(b) and all(map(equal, a, b))
    if hasattr(a, "tobytes"):
        return type(a) is type(b) and a.tobytes() == b.tobytes()
    if hasattr(a, "__dict__"):
        return type(a) is type(b) and equal(vars(a), vars(b))
    return type(a) is type(b) and a == b or a != a and b != b


def is_empty(metadata, index):
    """A chunk without elements, which torch writes an item for and never reads."""
    chunks = getattr(metadata.state_dict_metadata[index.fqn], "chunks", [])
    return any(0 in c.sizes for c in chunks if c.offsets == index.offset)


def items(path):
    """What torch reads from each item of a .distcp file."""
    folder, read = path.parent, {}
    by_rank = [] if (folder / ".metadata").exists() else [int(m.name[2:-9]) for m in folder.glob("__*.metadata")]
    for rank in by_rank or [None]:
        metadata = FileSystemReader(folder).read_metadata(**({} if rank is None else {"rank": rank}))
        for index, at in metadata.storage_data.items():
            if at.relative_path == path.name and not is_empty(metadata, index):
                with open(path, "rb") as f:
                    f.seek(at.offset)
                    data = f.read(at.length)
                read[index] = load(io.BytesIO(data if data[:2] == b"PK" else
                                              ZStandard().transform_from(io.BytesIO(data)).read()))
    return read


def same_values(before, now):
    """The framework's own reader reads the same from both files, or from the distributed checkpoints that have them."""
    try:
        return same_loaded(before, now)
    except Exception:  # pylint: disable=broad-except
        return False  # whatever a loader raises


def same_loaded(before, now):
    if before.suffix == ".distcp":
        return equal(items(before), items(now))
    if before.suffix in TORCH:
        return records(before) == records(now)
    if before.suffix == JSON:
        return json.loads(before.read_text()) == json.loads(now.read_text())
    return False


def is_json(path):
    with contextlib.suppress(ValueError):
        json.loads(path.read_text())
        return True
    return False


def is_safetensors(path):
    with contextlib.suppress(SafetensorError), safe_open(path, "pt"):
        return True
    return False


@dataclass
class Touched:
    """A file that was changed, and how. `before` and `now` are the file in both trees; it may be in one alone.
    is_named: another file of the checkpoint tells that this one exists."""

    name: str
    kinds: set
    before: Path
    now: Path
    is_named: bool

    def both(self):
        return self.before.is_file() and self.now.is_file()

    def was(self, *kinds):
        return bool(self.kinds & set(kinds))

    def both(self):
        return self.before.is_file() and self.now.is_file()

    def gone(self):
        return self.before.is_file() and not self.now.exists()


MOVED = ("swap", "reorder", "copy_over", "link")
# The first words of each row in docs/evidence.md, and when it holds.
ROWS = {
    "a file that nothing needs": lambda t: not t.before.exists() or "/zero/" in t.name and not t.is_named,
    "a link": lambda t: t.was("link") and (t.before.is_dir() and t.now.is_dir() or
                                           t.both() and t.before.read_bytes() == t.now.read_bytes()),
    "the same values, written in another way": lambda t: t.both() and same_values(t.before, t.now),
    "`.metadata`": lambda t: t.both() and t.name.endswith(".metadata"),
    "JSON": lambda t: t.both() and t.name.endswith(JSON) and is_json(t.now),
    "a safetensors file": lambda t: t.both() and t.name.endswith(".safetensors") and is_safetensors(t.now),
    "`.distcp` files that changed places": lambda t: t.was(*MOVED) and t.both() and t.name.endswith(".distcp")
    and t.before.stat().st_size == t.now.stat().st_size,
    "a shard of `use_collectives=False`": lambda t: t.both() and t.name.endswith(".distcp")
    and (t.before.parent / "__0.metadata").exists() and not Path(t.name).name.startswith("__0_"),
    "a compressed item": lambda t: t.both() and t.name.endswith(".distcp") and b"PK\3\4" not in t.before.read_bytes(),
    "files of two parameters": lambda t: t.was(*MOVED) and t.both() and "/zero/" in t.name,
    "a file of another save": lambda t: t.was("mix") and t.both(),
    "a file that no other names": lambda t: t.was("remove", "rename", "remove_directory", "link")
    and not t.now.exists() and not t.is_named,
}
