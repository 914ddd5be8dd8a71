"""What torchtitan 0.3.0 saves, by its own CheckpointManager, optimizers and schedulers: torchtitan_run.py OUT CASE...

OUT/CASE/checkpoint/{step-2,step-3}: a step on the way, and the last one, which is the model alone. OUT/CASE/live.safetensors is
the model, OUT/CASE/states.safetensors "NAME|STATE". CASE: fsdp2.
"""

import pickle
import sys

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from absent import stand_in
from installed import installed

sys.path.append(str(installed("torchtitan-0.3.0", "torchtitan==0.3.0")))
stand_in("torchdata", "datasets", "torch_checkpointing", "tyro", "spmd_types", "wandb", "tensorboard", "einops")

from torchtitan.components.checkpointer.dcp import CheckpointManager  # noqa: E402
from torchtitan.components.optimizer.lr_scheduler import LRSchedulersContainer  # noqa: E402
from torchtitan.components.optimizer.optimizer import OptimizersContainer, default_adamw  # noqa: E402

import oracle  # noqa: E402
from leaving import leave  # noqa: E402


class Model(torch.nn.Module):
    """With the names of torchtitan's."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(5)
        self.tok_embeddings = torch.nn.Embedding(32, 8)
        self.layers = torch.nn.ModuleDict({str(i): torch.nn.Linear(8, 8) for i in range(2)})
        self.norm = torch.nn.RMSNorm(8)
        self.output = torch.nn.Linear(8, 31, bias=False)

    def forward(self, x):
        x = self.tok_embeddings(x)
        for layer in self.layers.values():
            x = layer(x)
        return self.output(self.norm(x))


class Part:
    """One more thing that has a state_dict."""

    def __init__(self, state):
        self.state = state

    def state_dict(self):
        return self.state

    def load_state_dict(self, state):
        self.state = state


def run(out):
    model = Model()
    fully_shard(model, mesh=init_device_mesh("cpu", (dist.get_world_size(),)))
    config = default_adamw(lr=1e-2)
    config.implementation = "foreach"
    optimizers = OptimizersContainer(config, model_parts=[model])
    schedulers = LRSchedulersContainer(optimizers, lambda step: 1 / (step + 1))
    data = Part({f"dp_rank_{dist.get_rank()}": pickle.dumps({"sample": 3}), "world_size": dist.get_world_size()})
    manager = CheckpointManager(
        CheckpointManager.Config(enable=True, interval=2, keep_latest_k=0, last_save_model_only=True), dataloader=data,
        model_parts=[model], optimizers=optimizers, lr_schedulers=schedulers,
        states={"train_state": Part({"step": 2, "ntokens_seen": 32})}, sd_adapter=None, base_folder=out)
    for _ in range(2):
        model(torch.arange(8) + dist.get_rank()).square().mean().backward()
        optimizers.step()
        optimizers.zero_grad()
        schedulers.step()
    manager.save(2)
    manager.save(3, last_step=True)
    live = oracle.full_tensors(model)
    states = {f"{n}|{k}": oracle.full(v) for n, p in model.named_parameters()
              for k, v in optimizers.optimizers[0].state[p].items()}
    if dist.get_rank() == 0:
        oracle.write(live, f"{out}/live.safetensors")
        oracle.write(states, f"{out}/states.safetensors")


if __name__ == "__main__":
    dist.init_process_group("gloo")
    for case in sys.argv[2:]:
        run(f"{sys.argv[1]}/{case}")
    leave()
