"""vLLM reads a checkpoint's shards: vllm serve CHECKPOINT --load-format unshard.

An entry point of the group vllm.general_plugins: vLLM calls register() in each of its processes. The names of the
tensors are those that save_pretrained writes, which vLLM's models know."""

from __future__ import annotations

import dataclasses
import logging
from typing import Any, Callable, Iterator

import torch

from . import loading, slices
from .session import Tensor

log = logging.getLogger("unshard")
THEIRS = ("enable_weights_track",)  # keys of model_loader_extra_config that vLLM's own loader knows


def register() -> None:
    from vllm.model_executor.model_loader import register_model_loader
    from vllm.model_executor.model_loader.default_loader import DefaultModelLoader

    @register_model_loader("unshard")
    class UnshardLoader(DefaultModelLoader):  # pylint: disable=unused-variable
        """vLLM's default loader, whose tensors come from unshard. It checks itself that all weights were loaded, and
        quantizes. --model-loader-extra-config '{"view": "weights-bf16"}': iterate()'s arguments, and "slices"."""

        def __init__(self, load_config):
            self.own = {k: v for k, v in (load_config.model_loader_extra_config or {}).items() if k not in THEIRS}
            theirs = {k: v for k, v in (load_config.model_loader_extra_config or {}).items() if k in THEIRS}
            super().__init__(dataclasses.replace(load_config, model_loader_extra_config=theirs))

        def download_model(self, model_config) -> None:
            """A checkpoint is a directory of this machine."""

        def get_all_weights(self, model_config, model) -> Iterator[tuple[str, torch.Tensor]]:
            """(name, tensor) of each. vLLM asks again for model_config.model, which may be another checkpoint by then, to
            reload: RUN/latest is the newest of a run."""
            unused = getattr(model, "is_unused_checkpoint_weight", None)
            experts = getattr(self, "local_expert_ids", None)
            yield from weights(model_config.model, self.load_config, self.own,
                               lambda name: not (unused and unused(name)) and not other_ranks_expert(name, experts))
            for source in getattr(model, "secondary_weights", ()):  # a directory of another model
                yield from DefaultModelLoader(dataclasses.replace(
                    self.load_config, load_format="auto"))._get_weights_iterator(source)


def other_ranks_expert(name: str, local_expert_ids: set[int] | None) -> bool:
    if local_expert_ids is None:
        return False
    from vllm.model_executor.model_loader.ep_weight_filter import should_skip_weight
    return should_skip_weight(name, local_expert_ids)


def weights(checkpoint: str, load_config, own: dict[str, Any],
            wanted: Callable[[str], bool]) -> Iterator[tuple[str, torch.Tensor]]:
    """Those of a checkpoint whose names are wanted, by vLLM's options and the loader's own."""
    strategy = getattr(load_config, "safetensors_load_strategy", None)
    if strategy == "torchao":
        raise ValueError("tensors that torchao quantized before they were saved: serve the mount's or an exported directory "
                         "with --load-format auto")
    device, view, threads, cut = (own.get(key) for key in ("device", "view", "threads", "slices"))
    options = {k: v for k, v in own.items() if k not in ("device", "view", "threads", "slices")}
    device = torch.device(device or device_of(load_config))
    if cut is None:
        cut = strategy == "lazy" or (strategy is None and ranks() > 1)
    session, tensors = loading.open_tensors(checkpoint, view or "weights", **options)
    chosen = {name: t for name, t in tensors.items() if wanted(name)}
    counts = slices.Counts()
    reader = loading.reader_on(device, chosen, threads)
    found = slices.sliced(chosen, reader, device, counts) if cut else loading.read_ahead(chosen, session, reader)
    yield from shown(found, chosen, load_config)
    if cut:
        log.info("%s: %d of %d bytes were read%s", checkpoint, counts.bytes_read, sum(t.size_bytes for t in tensors.values()),
                 said_of(counts))


def said_of(counts: slices.Counts) -> str:
    more = f", {counts.bytes_in_vain} of them not used" if counts.bytes_in_vain else ""
    return more + "".join(f"; {n} by {name}" for name, n in sorted(counts.operations.items()))


def shown(found, chosen: dict[str, Tensor], load_config) -> Iterator[tuple[str, torch.Tensor]]:
    """With vLLM's bar of progress (--no-use-tqdm-on-load), in the process that shows it."""
    from tqdm.auto import tqdm
    from vllm.model_executor.model_loader.weight_utils import enable_tqdm
    with tqdm(total=sum(t.size_bytes for t in chosen.values()), desc="Loading checkpoint shards by unshard", unit="B",
              unit_scale=True, disable=not enable_tqdm(getattr(load_config, "use_tqdm_on_load", True))) as bar:
        for name, tensor in found:
            yield name, tensor
            bar.update(chosen[name].size_bytes)


def ranks() -> int:
    """Processes that have the model together."""
    distributed = torch.distributed.is_available() and torch.distributed.is_initialized()
    return torch.distributed.get_world_size() if distributed else 1


def device_of(load_config) -> str | torch.device:
    """Where vLLM wants the weights; else the GPU of this process."""
    return getattr(load_config, "device", None) or ("cuda" if torch.cuda.is_available() else "cpu")
