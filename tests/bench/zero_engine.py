"""A DeepSpeed engine around layers that weigh something: torchrun zero_engine.py OUT PARAMETERS
STAGE... saves OUT/zSTAGE after one step, by as many ranks as there are."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "e2e/make"))
import cpu_deepspeed  # noqa: E402, F401
import deepspeed  # noqa: E402
import torch  # noqa: E402

TAG = "global_step1"


def engine_of(stage, parameters, universal=False):
    width = 2048 if parameters > 5e7 else 512
    torch.manual_seed(0)
    layers = [torch.nn.Linear(width, width) for _ in range(round(parameters / width ** 2))]
    model = torch.nn.Sequential(*layers)
    config = {"train_micro_batch_size_per_gpu": 1, "zero_allow_untested_optimizer": True,
              "zero_force_ds_cpu_optimizer": False, "steps_per_print": 10 ** 9,
              "zero_optimization": {"stage": stage}, "bf16": {"enabled": True},
              "checkpoint": {"load_universal": universal}}
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    return deepspeed.initialize(model=model, optimizer=optimizer, config=config)[0]


def main():
    out, parameters, *stages = sys.argv[1], *map(int, sys.argv[2:])
    deepspeed.init_distributed("gloo")
    for stage in stages:
        engine = engine_of(stage, parameters)
        width = engine.module[0].in_features
        engine.backward(engine(torch.ones(1, width, dtype=torch.bfloat16)).float().square().mean())
        engine.step()
        engine.save_checkpoint(f"{out}/z{stage}")
        del engine
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
