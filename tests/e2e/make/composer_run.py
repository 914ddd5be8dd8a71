"""What MosaicML Composer 0.32.1 saves, by its own Trainer: composer_run.py OUT CASE...

OUT/CASE/run: of each batch a file (CASE plain, with DDP) or a directory (CASE fsdp). OUT/CASE/live.safetensors is the model at
the end, OUT/CASE/states.safetensors "NAME|STATE".
"""

import sys

import cpu_fsdp  # noqa: F401
import torch
import torch.distributed as dist
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

from absent import stand_in
from installed import installed

sys.path.append(str(installed("mosaicml-0.32.1", "mosaicml==0.32.1")))
stand_in("coolname", "tabulate", "cpuinfo", "torch_optimizer", "torchvision", "importlib_metadata", "mcli", "mlflow", "backoff",
         "psutil", "boto3", "botocore", "libcloud", "wandb", "requests", "urllib3", "PIL", "pynvml", "torchmetrics",
         "transformer_engine", "pandas", "tensorboard")

import composer  # noqa: E402
from composer.models import ComposerModel  # noqa: E402
from composer.utils import dist as ranks  # noqa: E402

import oracle  # noqa: E402
from leaving import leave  # noqa: E402

sys.modules["cpuinfo"].get_cpu_info.return_value = {}
torch.cuda.current_device = lambda: torch.device("cpu")  # what it shards on
CHOOSE = FSDP.state_dict_type
FSDP.state_dict_type = staticmethod(
    lambda module, state_dict_type, state_dict_config=None, optim_state_dict_config=None: CHOOSE(
        module, state_dict_type, state_dict_config, optim_state_dict_config))


class Model(ComposerModel):
    def __init__(self):
        super().__init__()
        torch.manual_seed(7)
        self.net = torch.nn.Sequential(torch.nn.Linear(7, 8), torch.nn.ReLU(), torch.nn.Linear(8, 5))

    def forward(self, batch):
        return self.net(batch)

    def loss(self, outputs, batch):
        return outputs.square().mean()


def run(case, out):
    model = Model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    rows = torch.randn(16, 7, generator=torch.Generator().manual_seed(1))
    sharded = {"parallelism_config": {"fsdp": {"state_dict_type": "sharded", "sharding_strategy": "FULL_SHARD"}}}
    trainer = composer.Trainer(
        model=model, optimizers=optimizer, max_duration="2ba", save_folder=f"{out}/run", save_interval="1ba", run_name="tests",
        train_dataloader=torch.utils.data.DataLoader(rows, batch_size=4, sampler=ranks.get_sampler(rows)),
        schedulers=composer.optim.LinearScheduler(), device="cpu", progress_bar=False, **(sharded if case == "fsdp" else {}))
    trainer.fit()
    weights = trainer.state.get_model_state_dict()
    states = trainer.state.get_optim_state_dict()["AdamW"]["state"]
    live = {n: oracle.full(t) for n, t in weights.items()}
    held = {f"{n}|{k}": oracle.full(t) for n, s in states.items() for k, t in s.items()}
    if dist.get_rank() == 0:
        oracle.write(live, f"{out}/live.safetensors")
        oracle.write(held, f"{out}/states.safetensors")


if __name__ == "__main__":
    for one in sys.argv[2:]:
        run(one, f"{sys.argv[1]}/{one}")
    leave()
