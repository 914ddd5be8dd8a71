"""Megatron-Core's torch_dist checkpoints as tests/e2e/make has them, of models that are smaller still:

    torchrun --nproc_per_node=1 megatron_small.py OUT CASE...

Each makes OUT/CASE/hf/config.json and OUT/CASE/run/iter_0000002."""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "e2e/make"))

import torch.distributed as dist  # noqa: E402

import torch_dist  # noqa: E402
import torch_dist_optimizer  # noqa: E402
from leaving import leave  # noqa: E402

torch_dist.CASES |= {
    "dense": ("qwen3_moe", torch_dist.MOE | {"num_experts": 2, "mlp_only_layers": [0]}, {},
              {"moe": [0, 1], "qk_norm": True}),
    "vision": ("qwen3_vl", torch_dist.MROPE | {"num_hidden_layers": 1}, {},
               {"qk_norm": True, "vision": torch_dist.QWEN3_VISION | {"depth": 1, "deepstack_visual_indexes": [0]}}),
}
torch_dist_optimizer.CASES |= {
    "optimizer": ("qwen2", {"num_hidden_layers": 1, "head_dim": 4, "tie_word_embeddings": True}, {}, {"qkv_bias": True},
                  "fully_reshardable"),
    "buckets": ("llama", {"num_hidden_layers": 1, "tie_word_embeddings": True}, {}, {}, "dp_reshardable"),
}

if __name__ == "__main__":
    from megatron.core.dist_checkpointing.strategies import filesystem_async

    dist.init_process_group("gloo")
    for one in sys.argv[2:]:
        if one in torch_dist.CASES:
            torch_dist.run(one, f"{sys.argv[1]}/{one}")
            continue
        with torch_dist_optimizer.OnCpu():
            torch_dist_optimizer.run(one, f"{sys.argv[1]}/{one}")
    filesystem_async._results_queue = None  # ends the process that it lies in
    leave()
