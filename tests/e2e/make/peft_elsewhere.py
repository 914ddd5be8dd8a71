"""LoRA as other trainers than Hugging Face's save it, the base model with it, several in one launch:

    torchrun --nproc_per_node=W peft_elsewhere.py OUT CASE...

CASE is one of ranks.py (verl-f2), with veRL's lora_adapter/ beside, or lightning-STRATEGY of lightning_run.py. It makes
what these say, of peft_models.adapted("lora"), and OUT/CASE/adapter_config.json.
"""

import sys

import torch
import torch.distributed as dist
from peft.utils.save_and_load import get_peft_model_state_dict
from safetensors.torch import load_file, save_file
from torch.distributed.fsdp import fully_shard

import lightning_net
import lightning_run
import peft_models
import ranks
from leaving import leave


class Adapted(lightning_net.Published):
    def __init__(self):
        super().__init__()
        self.model = peft_models.adapted("lora")

    def configure_optimizers(self):
        return torch.optim.AdamW([p for p in self.parameters() if p.requires_grad], lr=1e-2)


class Sharded(Adapted):
    def configure_model(self):
        if not getattr(self, "is_sharded", False):
            for layer in ranks.layers_of(self.model):
                fully_shard(layer, mesh=self.device_mesh["data_parallel"])
            fully_shard(self.model, mesh=self.device_mesh["data_parallel"])
            self.is_sharded = True


def lightning(out, strategy):
    lightning_run.on_cpu()
    lightning_run.module_of = lambda name, kind: Sharded() if name == "mp" else Adapted()
    where = f"{out}/lightning-{strategy}"
    keep = lightning_run.checkpoints(f"{where}/run", save_top_k=-1)
    lightning_run.write(lightning_run.fit(strategy, 2, [keep]), f"{where}/live.safetensors")


def plain(tensors):
    model = peft_models.adapted("lora")
    model.load_state_dict(tensors)
    return model


def per_rank(out, case):
    ranks.build = lambda fsdp, kind, dtype: peft_models.adapted("lora").to(dtype)
    ranks.write_config = lambda model, where: peft_models.base().config.save_pretrained(f"{where}/huggingface")
    ranks.run(case, f"{out}/{case}")
    if dist.get_rank() == 0 and case.startswith("verl"):
        beside = f"{out}/{case}/run/global_step_2/actor/lora_adapter"
        model = plain(load_file(f"{out}/{case}/live/model.safetensors"))
        model.peft_config["default"].save_pretrained(beside)
        save_file(get_peft_model_state_dict(model), f"{beside}/adapter_model.safetensors")


if __name__ == "__main__":
    dist.is_initialized() or dist.init_process_group("gloo")
    torch.set_num_threads(1)
    for one in sys.argv[2:]:
        (lightning if one.startswith("lightning-") else per_rank)(sys.argv[1], one.removeprefix("lightning-"))
        if dist.get_rank() == 0:
            peft_models.adapted("lora").peft_config["default"].save_pretrained(f"{sys.argv[1]}/{one}")
        dist.barrier()
    leave()
