"""torch.distributed.checkpoint loads any checkpoint's weights: dcp.load(state_dict, storage_reader=Reader(c)).

Every rank reads the boxes that its shards need, straight from the source's files, whatever framework saved them
and on however many ranks."""

from __future__ import annotations

import math
import os
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch
from torch.distributed.checkpoint import LoadPlan, LoadPlanner, Metadata, StorageReader
from torch.distributed.checkpoint.metadata import ChunkStorageMetadata, TensorProperties, TensorStorageMetadata
from torch.distributed.checkpoint.planner import LoadItemType, ReadItem
from torch.futures import Future

from .loading import DTYPES, THREADS, ended_all, open_tensors


class Reader(StorageReader):
    """A StorageReader. Names are those of the view's files of weights, behind `prefix`: "model." where the state
    dict is {"model": model.state_dict()}. Every rank makes its own; further arguments are unshard.open()'s."""

    def __init__(self, checkpoint: str | os.PathLike, view: str = "weights", *, prefix: str = "", **options: Any):
        self.session, self.tensors = open_tensors(checkpoint, view, **options)
        self.prefix = prefix

    def reset(self, checkpoint_id: str | os.PathLike | None = None) -> None:
        """The checkpoint stays that of the constructor."""

    def read_metadata(self, *args: Any, **kwargs: Any) -> Metadata:
        """Each tensor as one whole."""
        return Metadata({self.prefix + name: TensorStorageMetadata(
            TensorProperties(dtype=DTYPES[t.dtype]), torch.Size(t.shape),
            [ChunkStorageMetadata(torch.Size([0] * len(t.shape)), torch.Size(t.shape))])
            for name, t in self.tensors.items()})

    def set_up_storage_reader(self, metadata: Metadata, is_coordinator: bool, *args: Any, **kwargs: Any) -> None:
        """Nothing is kept of the metadata: the list of tensors has all of it."""

    def prepare_local_plan(self, plan: LoadPlan) -> LoadPlan:
        return plan

    def prepare_global_plan(self, plans: list[LoadPlan]) -> list[LoadPlan]:
        return plans

    def read_box(self, item: ReadItem, planner: LoadPlanner) -> None:
        t = self.tensors[item.storage_index.fqn.removeprefix(self.prefix)]
        to = planner.resolve_tensor(item).detach()
        straight = to.is_contiguous() and to.dtype == DTYPES[t.dtype] and to.device.type == "cpu"
        box = to if straight else torch.empty(tuple(item.lengths), dtype=DTYPES[t.dtype])
        if math.prod(item.lengths):
            t.read_at(box.data_ptr(), box.numel() * box.element_size(), item.storage_offsets, item.lengths)
        if not straight:
            to.copy_(box)
        planner.commit_tensor(item, to)

    def read_data(self, plan: LoadPlan, planner: LoadPlanner) -> Future[None]:
        for item in plan.items:
            if item.type == LoadItemType.BYTE_IO:
                raise KeyError(f"{item.storage_index.fqn}: a view's weights are tensors only")
        with ThreadPoolExecutor(THREADS) as pool:
            ended_all([pool.submit(self.read_box, item, planner) for item in plan.items])
        done: Future[None] = Future()
        done.set_result(None)
        return done

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: str | os.PathLike) -> bool:
        return True
