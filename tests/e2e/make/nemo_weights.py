"""What NeMo 2 saves in weights/, with an optimizer, several cases in one launch:

    torchrun --nproc_per_node=4 nemo_weights.py OUT CASE...

Each makes what torch_dist_optimizer.py makes of a case, but run/model--step=2/weights in place of run/iter_0000002. NeMo's
own code (nemo_toolkit 2.5.3, with megatron-core 0.14.0, the oldest that it takes) wraps the model (MegatronParallel), makes the optimizer and its
param groups (setup_megatron_optimizer), schedules the learning rate (CosineAnnealing), and saves (MegatronStrategy,
MegatronCheckpointIO). Lightning's Trainer runs the steps. The gradients are torch_dist_optimizer.py's.
"""

import shutil
import sys

from installed import installed

sys.path.insert(0, str(installed("megatron-core-0.14.0", "megatron-core==0.14.0")))  # in front of the other one

import lightning.pytorch as pl
import numpy
import torch
import torch.distributed as dist

import torch_dist
import torch_dist_optimizer
from torch_dist import STEP

numpy.product = numpy.prod  # as it was called then

SPACE, GATHERED = "fully_sharded_model_space", "dp_zero_gather_scatter"
CASES = {
    "llama-tp2-nemo-bf16": ("llama", {}, {"tp": 2}, {}, SPACE),
    "qwen3_moe-ep2-nemo": ("qwen3_moe", torch_dist.MOE, {"ep": 2}, {"moe": True, "qk_norm": True}, SPACE),
    "llama-tp2-nemo-gathered": ("llama", {}, {"tp": 2}, {}, GATHERED),  # it asks for that, and does not get it
}
last_strategy = None
moe_config = torch_dist.moe_config


def older_moe_config(hf, more):
    return {k: v for k, v in moe_config(hf, more).items() if k != "moe_shared_expert_gate"}


def nemo(kind):
    """NeMo's classes, as far as they are used: what a strategy saves, below Lightning's for one device."""
    import nemo_code  # noqa: F401
    from lightning.pytorch.strategies import SingleDeviceStrategy
    from nemo.lightning.io.pl import MegatronCheckpointIO
    from nemo.lightning.pytorch.strategies.megatron_strategy import MegatronStrategy

    class Strategy(SingleDeviceStrategy):
        ckpt_save_optimizer, save_ckpt_format, parallel_save_optim = True, "torch_dist", kind == SPACE
        save_checkpoint = MegatronStrategy.save_checkpoint
        optimizer_sharded_state_dict = MegatronStrategy.optimizer_sharded_state_dict
        sharded_state_dict_metadata = MegatronStrategy.sharded_state_dict_metadata
        is_global_zero = property(lambda self: dist.get_rank() == 0)
        trainer = property(lambda self: self.megatron_parallel.trainer)

    return Strategy(device="cpu", checkpoint_io=MegatronCheckpointIO())


class Module(pl.LightningModule):
    def __init__(self, model, config):
        super().__init__()
        self.module, self.optimizer_config = model, config

    def configure_model(self):
        """It has its model. NeMo looks for this."""

    def configure_optimizers(self):
        from nemo.core.optim.lr_scheduler import CosineAnnealing
        from nemo.lightning._strategy_lib import setup_megatron_optimizer

        optimizer = setup_megatron_optimizer(self.trainer.strategy.megatron_parallel, self.optimizer_config)
        schedule = CosineAnnealing(optimizer, max_steps=10, warmup_steps=0, constant_steps=0, min_lr=1e-3)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}

    def training_step(self, batch):
        torch_dist_optimizer.set_gradients(self.module.module, self.global_step)
        return torch.zeros((), requires_grad=True)


def trained(config, model, kind, more, dtype):
    global last_strategy
    strategy = last_strategy = nemo(kind)
    from nemo.lightning.megatron_parallel import MegatronParallel

    strategy.ddp_config = torch_dist_optimizer.ddp_config(True, more)
    module = Module(model, torch_dist_optimizer.optimizer_config(True, dtype))
    strategy.megatron_parallel = MegatronParallel(module, ddp_config=strategy.ddp_config, cpu=True)
    trainer = strategy.megatron_parallel.trainer = pl.Trainer(
        max_steps=STEP, strategy=strategy, logger=False, enable_checkpointing=False, enable_progress_bar=False,
        enable_model_summary=False)
    strategy.megatron_parallel.init_ddp()
    trainer.fit(module, torch.utils.data.DataLoader(torch.zeros(8, 1)))
    return trainer.optimizers[0].mcore_optimizer


def save(state, out, content_metadata):
    from megatron.core import parallel_state

    if dist.get_rank() == 0:
        shutil.rmtree(f"{out}/run/iter_{STEP:07}")
    dist.barrier()
    last_strategy.trainer.save_checkpoint(f"{out}/run/model--step={STEP}.ckpt")
    parallel_state.destroy_model_parallel()
    dist.barrier()


def main():
    torch_dist.moe_config = older_moe_config
    torch_dist.save = save
    torch_dist_optimizer.CASES, torch_dist_optimizer.trained = CASES, trained
    with torch_dist_optimizer.OnCpu():
        torch_dist.run_all(torch_dist_optimizer.run)


if __name__ == "__main__":
    main()
