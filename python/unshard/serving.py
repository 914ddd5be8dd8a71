"""What the loaders of servers (vllm.py, sglang.py) have in common: the weights of a checkpoint, whole and ahead of the
server, or as tensors that are read where it copies them."""

from __future__ import annotations

import logging
from typing import Any, Callable, Iterable, Iterator

import torch

from . import loading, slices
from .session import Tensor

log = logging.getLogger("unshard")
OWN = ("device", "view", "threads", "slices")  # of the options; the others are those of unshard.open()


def weights(checkpoint: str, options: dict[str, Any], *, wanted: Callable[[str], bool], device: str | torch.device | None,
            cut: bool | None, bar: bool) -> Iterator[tuple[str, torch.Tensor]]:
    """(name, tensor) of those whose names are wanted. device: the server's. cut: as slices, if no option says it; None =
    if several processes have the model together. bar: show the progress."""
    device = torch.device(options.get("device") or device or ("cuda" if torch.cuda.is_available() else "cpu"))
    cut = options.get("slices", ranks() > 1 if cut is None else cut)
    session, tensors = loading.open_tensors(checkpoint, options.get("view", "weights"),
                                            **{k: v for k, v in options.items() if k not in OWN})
    chosen = {name: t for name, t in tensors.items() if wanted(name)}
    counts = slices.Counts()
    reader = loading.reader_on(device, chosen, options.get("threads"))
    found: Iterable = slices.sliced(chosen, reader, device, counts) if cut else loading.read_ahead(chosen, session, reader)
    yield from shown(found, chosen, bar)
    if cut:
        log.info("%s: %d of %d bytes were read%s", checkpoint, counts.bytes_read, sum(t.size_bytes for t in tensors.values()),
                 said_of(counts))


def said_of(counts: slices.Counts) -> str:
    more = f", {counts.bytes_in_vain} of them not used" if counts.bytes_in_vain else ""
    return more + "".join(f"; {n} by {name}" for name, n in sorted(counts.operations.items()))


def shown(found: Iterable, chosen: dict[str, Tensor], bar: bool) -> Iterator[tuple[str, torch.Tensor]]:
    from tqdm.auto import tqdm
    with tqdm(total=sum(t.size_bytes for t in chosen.values()), desc="Loading checkpoint shards by unshard", unit="B",
              unit_scale=True, disable=not bar) as progress:
        for name, tensor in found:
            yield name, tensor
            progress.update(chosen[name].size_bytes)


def ranks() -> int:
    """Processes that have the model together."""
    distributed = torch.distributed.is_available() and torch.distributed.is_initialized()
    return torch.distributed.get_world_size() if distributed else 1
