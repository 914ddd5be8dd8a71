"""SGLang reads a checkpoint's shards: python -m sglang.launch_server --load-format unshard.

An entry point of the group sglang.srt.plugins: SGLang calls register() in each of its processes. The choice
is added to its list, and its registry of hooks makes LoadConfig take a loader's class for the name."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any, Callable, Iterator

import torch

from . import serving

NAME = "unshard"
THEIRS = ("enable_multithread_load", "num_threads")  # keys of model_loader_extra_config that SGLang's own loader knows


def register() -> None:
    from sglang.srt.plugins.hook_registry import HookRegistry, HookType
    from sglang.srt.server_args import add_load_format_choices

    add_load_format_choices([NAME])
    HookRegistry.register("sglang.srt.configs.load_config.LoadConfig._verify_load_format", take_the_loader, HookType.AROUND)


def take_the_loader(verify: Callable[[Any], None], load_config) -> None:
    if load_config.load_format == NAME:
        load_config.load_format = loader()
    else:
        verify(load_config)


@functools.cache
def loader() -> type:
    """The class, which Engine(load_format=...) takes too where plugins are not loaded."""
    from sglang.srt.model_loader.loader import DefaultModelLoader

    class UnshardLoader(DefaultModelLoader):
        """SGLang's default loader, whose tensors come from unshard: update_weights_from_disk accepts no other.
        --model-loader-extra-config '{"view": "weights-bf16"}': iterate()'s arguments, and "slices"."""

        def __init__(self, load_config):
            told = load_config.model_loader_extra_config or {}
            self.options = {k: v for k, v in told.items() if k not in THEIRS}
            super().__init__(dataclasses.replace(
                load_config, model_loader_extra_config={k: v for k, v in told.items() if k in THEIRS}))

        def download_model(self, model_config) -> None:
            """A checkpoint is a directory of this machine."""

        def _get_weights_iterator(self, source, **_) -> Iterator[tuple[str, torch.Tensor]]:
            if source.model_config is None:  # a directory of another model
                yield from DefaultModelLoader(dataclasses.replace(
                    self.load_config, load_format="auto"))._get_weights_iterator(source)
                return
            for name, tensor in serving.weights(source.model_or_path, self.options, wanted=lambda name: True, device=None,
                                                cut=None, bar=first_rank()):
                yield source.prefix + name, tensor

    return UnshardLoader


def first_rank() -> bool:
    return serving.ranks() == 1 or torch.distributed.get_rank() == 0
