"""vLLM reads a checkpoint's shards: vllm serve CHECKPOINT --load-format unshard.

An entry point of the group vllm.general_plugins: vLLM calls register() in each of its processes. The names of the
tensors are those that save_pretrained writes, which vLLM's models know."""

from __future__ import annotations

import torch

from .loading import iterate


def register() -> None:
    from vllm.model_executor.model_loader import register_model_loader
    from vllm.model_executor.model_loader.base_loader import BaseModelLoader

    @register_model_loader("unshard")
    class UnshardLoader(BaseModelLoader):  # pylint: disable=unused-variable
        """--model-loader-extra-config '{"view": "weights-bf16"}': iterate()'s arguments."""

        def download_model(self, model_config) -> None:
            """A checkpoint is a directory of this machine."""

        def load_weights(self, model, model_config) -> None:
            arguments = {"device": device_of(self.load_config), **(self.load_config.model_loader_extra_config or {})}
            model.load_weights(iterate(model_config.model, **arguments))


def device_of(load_config) -> str | torch.device:
    """Where vLLM wants the weights; else the GPU of this process."""
    return getattr(load_config, "device", None) or ("cuda" if torch.cuda.is_available() else "cpu")
