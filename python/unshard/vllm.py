"""vLLM reads a checkpoint's shards: vllm serve CHECKPOINT --load-format unshard.

An entry point of the group vllm.general_plugins: vLLM calls register() in each of its processes. The names of the
tensors are those that save_pretrained writes, which vLLM's models know."""

from __future__ import annotations

import dataclasses
from typing import Any, Callable, Iterator

import torch

from . import serving

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


def weights(checkpoint: str, load_config, options: dict[str, Any],
            wanted: Callable[[str], bool]) -> Iterator[tuple[str, torch.Tensor]]:
    """Those of a checkpoint whose names are wanted, by vLLM's options and the loader's own."""
    from vllm.model_executor.model_loader.weight_utils import enable_tqdm
    strategy = getattr(load_config, "safetensors_load_strategy", None)
    if strategy == "torchao":
        raise ValueError("tensors that torchao quantized before they were saved: serve the mount's or an exported directory "
                         "with --load-format auto")
    yield from serving.weights(checkpoint, options, wanted=wanted, device=getattr(load_config, "device", None),
                               cut=None if strategy is None else strategy == "lazy",
                               bar=enable_tqdm(getattr(load_config, "use_tqdm_on_load", True)))
