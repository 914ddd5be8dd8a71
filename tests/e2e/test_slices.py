"""Tensors that are read where they are copied (unshard.slices): what torch makes of them and of ordinary tensors, and the
bytes that each rank of a tensor parallel group reads."""

import copy
import pickle
import random
import types

import pytest
import torch

import trees
from test_python import GOLDEN, unshard
from unshard import loading, slices


class Memory:
    """A reader of tensors that are in memory."""

    def __init__(self, values):
        self.values, self.boxes = values, []

    def begin(self, boxes):
        self.boxes += boxes

        def end():
            out = []
            for box in boxes:
                part = self.values[box.tensor.name]
                for d, (lo, n) in enumerate(zip(box.lo, box.length)):
                    assert 0 <= lo and n > 0 and lo + n <= part.shape[d]
                    part = part.narrow(d, lo, n)
                out.append(part.clone())
            return out
        return end


def described(values):
    return {name: types.SimpleNamespace(name=name, shape=tuple(t.shape), dtype=str(t.dtype).removeprefix("torch."),
                                        size_bytes=t.nbytes) for name, t in values.items()}


def of(values):
    """-> (what slices.sliced() yields, the counts)"""
    counts = slices.Counts()
    return slices.sliced(described(values), Memory(values), "cpu", counts), counts


def one(value):
    (_, tensor), = of({"w": value})[0]
    return tensor


# -- any chain of operations --

def some_cut(x, r):
    """A random operation that takes elements of a tensor, as a function."""
    dim = r.randrange(x.dim()) if x.dim() else 0
    n = x.shape[dim] if x.dim() else 1
    lo = r.randrange(n) if n else 0
    length = r.randint(0 if r.random() < 0.05 else 1, n - lo) if n > lo else 0
    order = list(range(x.dim()))
    r.shuffle(order)
    factors = [k for k in (2, 3, 4) if n and n % k == 0]
    ways = [lambda t: t.detach(), lambda t: t.data, lambda t: t.unsqueeze(dim), lambda t: t.squeeze(),
            lambda t: t.view(t.shape) if t.is_contiguous() else t, lambda t: t.flatten(), lambda t: t.reshape(-1),
            lambda t: t[..., None], lambda t: t.expand(2, *t.shape), lambda t: t.to(t.dtype)]
    if x.dim():
        step, part = r.randint(1, 3), r.randint(1, 4)
        ways += 3 * [lambda t: t.narrow(dim, lo, length)]
        ways += [lambda t: t[lo:lo + length], lambda t: t.transpose(0, dim), lambda t: t.permute(order),
                 lambda t: t[(slice(None),) * dim + (slice(lo, lo + length, step),)],
                 lambda t: t.chunk(part, dim)[-1], lambda t: t.split(max(1, length), dim)[0],
                 lambda t: torch.movedim(t, dim, 0), lambda t: t.T if t.dim() == 2 else t]
        if n:
            ways += [lambda t: t.select(dim, lo), lambda t: t[lo - n] if dim == 0 else t, lambda t: t.unbind(dim)[lo]]
    if factors:
        k = r.choice(factors)
        ways += [lambda t: t.unflatten(dim, (k, -1)), lambda t: t.reshape(*t.shape[:dim], k, -1, *t.shape[dim + 1:])]
    return r.choice(ways)


ENDS = [lambda t: t.clone(), lambda t: t.contiguous(), lambda t: torch.empty(t.shape).copy_(t), lambda t: t.float(),
        lambda t: torch.empty(t.shape, dtype=torch.bfloat16).copy_(t), lambda t: t + 1, lambda t: torch.cat([t, t]) if t.dim() else t * 2,
        lambda t: t.view(torch.int32) if t.dtype == torch.float32 else -t, lambda t: t.sum(), lambda t: t == t,
        lambda t: torch.from_numpy(t.numpy().copy()), lambda t: copy.deepcopy(t), lambda t: pickle.loads(pickle.dumps(t)),
        lambda t: torch.stack([t, t.clone()]), lambda t: torch.tensor(t.tolist())]


@pytest.mark.parametrize("split_bytes", [1, 64, 1 << 30])
def test_any_chain_of_operations_has_the_values_of_ordinary_tensors(monkeypatch, split_bytes):
    monkeypatch.setattr(slices, "SPLIT_BYTES", split_bytes)
    r = random.Random(split_bytes)
    for _ in range(400):
        shape = [r.choice((1, 2, 3, 4, 6, 8, 12)) for _ in range(r.randint(0, 4))]
        want = torch.arange(float(torch.Size(shape).numel())).reshape(shape)
        got = one(want)
        for _ in range(r.randint(0, 6)):
            cut = some_cut(want, r)
            want, got = cut(want), cut(got)
            assert (got.shape, got.stride(), got.dtype) == (want.shape, want.stride(), want.dtype)
        if r.random() < 0.3:
            want, got = want.clone() if want.requires_grad else want, got  # a second reader of the same view
            assert torch.equal(got.clone(), want)
        end = r.choice(ENDS)
        want, got = end(want), end(got)
        assert got.dtype == want.dtype and torch.equal(got, want)


def test_nothing_is_read_before_it_is_copied():
    values = {"w": torch.randn(12, 10)}
    tensors, counts = of(values)
    (_, w), = tensors
    parts = [w.narrow(1, 2, 3), w[3], w.t()[:4], w.view(3, 4, 10)[1], *w.chunk(3), w.data.detach(), w.to(torch.float32), w.contiguous()]
    torch.empty(12, 10, device="meta").copy_(w)
    assert counts == slices.Counts() and "not read" in repr(w) and [p.shape for p in parts[:2]] == [(12, 3), (10,)]
    parts[0].clone()
    assert counts.bytes_read == 12 * 3 * 4 and not counts.operations
    parts[1] * 2
    assert counts.bytes_read == 12 * 3 * 4 + 40 and counts.operations == {"aten.mul.Tensor": 1}


def test_what_is_written_to_a_tensor_is_seen_by_all_views_of_it():
    want = torch.arange(24.0).reshape(4, 6)
    w = one(want.clone())
    row, column = w[1], w[:, 2]
    row.add_(100)
    want[1].add_(100)
    column.copy_(torch.zeros(4))
    want[:, 2] = 0
    w[3, 3:].fill_(7)
    want[3, 3:] = 7
    for got, is_ in ((w, want), (row, want[1]), (column, want[:, 2])):
        assert torch.equal(got.clone(), is_)
    with pytest.raises(NotImplementedError, match="w: .* cannot change its shape in place"):
        w.t_()


@pytest.mark.parametrize("view", ["weights", "weights-bf16"])
def test_of_a_checkpoint(view):
    checkpoint, counts = GOLDEN / "run/checkpoint-2", slices.Counts()
    want = unshard.load_file(checkpoint, view)
    session, tensors = loading.open_tensors(checkpoint, view)
    reader = loading.reader_on("cpu", tensors)
    trees.assert_same({name: t.clone() for name, t in slices.sliced(tensors, reader, "cpu", counts)}, want)
    assert counts.bytes_read == sum(t.nbytes for t in want.values()) and not counts.bytes_in_vain
    kept = dict(slices.sliced(tensors, reader, "cpu", counts))
    del session, tensors, reader  # what was handed out keeps them
    assert all(torch.equal(t[1:].clone(), want[name][1:]) for name, t in kept.items())


# -- what the ranks of a group read: the cuts of vLLM's weight loaders --

def model(heads=8, kv_heads=4, head=4, hidden=32, inner=48, vocab=50, experts=8, layers=4):
    def weight(*shape):
        return torch.randn(*shape, dtype=torch.bfloat16)
    out = {"embed.weight": weight(vocab, hidden)}
    for i in range(layers):
        p = f"layers.{i}."
        out |= {p + "q.weight": weight(heads * head, hidden), p + "k.weight": weight(kv_heads * head, hidden),
                p + "v.weight": weight(kv_heads * head, hidden), p + "o.weight": weight(hidden, heads * head),
                p + "qkv.weight": weight((heads + 2 * kv_heads) * head, hidden), p + "norm.weight": weight(hidden),
                p + "gate_up.weight": weight(2 * inner, hidden), p + "down.weight": weight(hidden, inner)}
        out |= {f"{p}experts.{e}.{w}.weight": weight(inner, hidden) for e in range(experts) for w in ("w1", "w3")}
        out |= {p + "stacked.weight": weight(experts, hidden, 2 * inner)}  # transposed, as gpt_oss has them
    return out | {"norm.weight": weight(hidden)}


def rank_loads(tensors, rank, size, heads=8, kv_heads=4, head=4, vocab=50, experts=8):
    """-> {name: what this rank of `size` copies}"""
    out = {}

    def load(name, *parts):
        out[name] = torch.cat([torch.zeros(part.shape, dtype=part.dtype).copy_(part) for part in parts])

    for name, w in tensors:
        kind = name.split(".")[-2]
        if kind == "embed":  # the vocabulary is padded to a multiple of 64
            rows = 64 // size
            first = min(rank * rows, vocab)
            load(name, w.narrow(0, first, min(rows, vocab - first)))
        elif kind in ("q", "w1", "w3") and "experts" not in name:
            load(name, w.narrow(0, rank * (w.shape[0] // size), w.shape[0] // size))
        elif kind in ("k", "v"):  # each head is of several ranks, if there are more of them
            copies = max(1, size // kv_heads)
            rows = w.shape[0] * copies // size
            load(name, w.narrow(0, rank // copies * rows, rows))
        elif kind in ("o", "down"):
            columns = w.shape[1] // size
            load(name, w.narrow(1, rank * columns, columns))
        elif kind == "qkv":
            sizes = [heads * head, kv_heads * head, kv_heads * head]
            copies = [1] + 2 * [max(1, size // kv_heads)]
            load(name, *(w.narrow(0, sum(sizes[:i]), n).narrow(0, rank // c * (n * c // size), n * c // size)
                         for i, (n, c) in enumerate(zip(sizes, copies))))
        elif kind == "gate_up":
            load(name, *(half.chunk(size, 0)[rank] for half in w.chunk(2, 0)))
        elif "experts" in name:
            if int(name.split(".")[3]) // (experts // size) == rank:
                load(name, w)
        elif kind == "stacked":
            for e in range(rank * (experts // size), (rank + 1) * (experts // size)):
                load(f"{name}.{e}", w[e].t().contiguous())
        else:
            load(name, w)
    return out


@pytest.mark.parametrize("size", [1, 2, 4, 8])
def test_each_rank_reads_its_part(size):
    """1/size of what is cut, all of what is not."""
    values = model()
    bytes_of = {name: t.nbytes for name, t in values.items()}
    read = []
    for rank in range(size):
        tensors, counts = of(values)
        got, want = rank_loads(tensors, rank, size), rank_loads(values.items(), rank, size)
        trees.assert_same(got, want)
        assert not counts.operations and not counts.bytes_in_vain
        assert counts.bytes_read == sum(t.nbytes for t in want.values())
        read.append(counts.bytes_read)
    uncut = sum(n for name, n in bytes_of.items() if "norm" in name)
    more = sum(n for name, n in bytes_of.items() if name.split(".")[-2] in "kv") * (size // 4 - 1 if size > 4 else 0)
    more += sum(n // 2 for name, n in bytes_of.items() if "qkv" in name) * (size // 4 - 1 if size > 4 else 0)
    assert sum(read) == sum(bytes_of.values()) + (size - 1) * uncut + more
    assert max(read) <= (sum(bytes_of.values()) - uncut + more) / size * 1.05 + uncut


def test_what_a_rank_reads_is_read_ahead():
    """A layer's as the layer before was read; a rank of a pipeline, whose layers end, read a few for nothing."""
    values = model()
    memory, counts, seen = Memory(values), slices.Counts(), []
    for name, w in slices.sliced(described(values), memory, "cpu", counts):
        if w.dim() == 2 and "embed" not in name and (not name.startswith("layers.") or int(name.split(".")[1]) < 2):
            seen.append((name, any(box.tensor.name == name for box in memory.boxes)))
            w.narrow(0, 0, 4).clone()
    assert [begun for name, begun in seen] == [int(name.split(".")[1]) > 0 for name, _ in seen]
    assert 0 < counts.bytes_in_vain < counts.bytes_read
    assert len(memory.boxes) == len({(box.tensor.name, *box.lo) for box in memory.boxes})
