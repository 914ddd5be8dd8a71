"""Runs of PEFT models, several in one launch:

    torchrun --nproc_per_node=W peft_run.py OUT CASE...

CASE is METHOD-ENGINE (lora-f2): a Trainer (f1, f2: FSDP with SHARDED_STATE_DICT; f2full: FULL_STATE_DICT; z2, z3:
DeepSpeed; plain) trains four steps without a break. It makes
    OUT/CASE/run/checkpoint-{2,4}, OUT/CASE/run/adapter_config.json   what a user has
    OUT/CASE/live-2.safetensors                                       the live tensors at that step, the base's too
    OUT/CASE/states-2.safetensors                                     "NAME|STATE" of the live optimizer (f2, z2, z3)
    OUT/CASE/adapter-2/                                               save_pretrained of the same state
METHOD-acc-ENGINE: a loop of Accelerate's, OUT/CASE/run/state instead of checkpoint-2.

"resume:METHOD-ENGINE:DIRECTORY:NAME" goes on from DIRECTORY instead (with "universal" as a fifth part: by
load_universal), and "resume:METHOD-acc-ENGINE:..." likewise: OUT/NAME.json, the losses of the steps that follow, or
the error's text.
"""

import functools
import json
import os
import sys

ENGINES = {one.split(":")[1 if one.startswith("resume:") else 0].split("-")[-1] for one in sys.argv[2:]}
if any(e.startswith("z") for e in ENGINES):
    import cpu_deepspeed
elif ENGINES != {"plain"}:
    import cpu_fsdp  # noqa: F401

import torch
import torch.distributed as dist
from accelerate import Accelerator, DeepSpeedPlugin, FullyShardedDataParallelPlugin
from transformers import Trainer, TrainerCallback, TrainingArguments

import oracle
import peft_models
from leaving import leave
from resume_run import Tokens, forget_last_run

STEPS, SAVED = 4, 2
WRAPPED = ["LlamaDecoderLayer"]


def zero(stage, universal):
    config = {"train_micro_batch_size_per_gpu": 1, "gradient_accumulation_steps": 1,
              "train_batch_size": dist.get_world_size() if dist.is_initialized() else int(os.environ["WORLD_SIZE"]),
              "gradient_clipping": 1.0, "zero_force_ds_cpu_optimizer": False,
              "zero_allow_untested_optimizer": True, "zero_optimization": {"stage": stage}}
    if stage == 3:
        config["zero_optimization"] |= {"stage3_param_persistence_threshold": 0,
                                        "stage3_gather_16bit_weights_on_model_save": True}
    if universal:
        config["checkpoint"] = {"load_universal": True}
    return config


def state_dict_type(engine):
    return "FULL_STATE_DICT" if engine.endswith("full") else "SHARDED_STATE_DICT"


def sharding(engine, universal):
    """TrainingArguments' part."""
    if engine == "plain":
        return {}
    if engine[0] == "z":
        return {"deepspeed": zero(int(engine[1]), universal), "dataloader_pin_memory": False}
    config = {"version": int(engine[1]), "state_dict_type": state_dict_type(engine),
              "auto_wrap_policy": "TRANSFORMER_BASED_WRAP", "transformer_layer_cls_to_wrap": WRAPPED}
    if engine[1] == "1":
        config.update(use_orig_params="true", reshard_after_forward="full_shard", sync_module_states="false")
    return {"fsdp": True, "fsdp_config": config}


def rank():
    return dist.get_rank() if dist.is_initialized() else 0


def live(model, engine):
    if engine[0] == "z":
        return cpu_deepspeed.tensors(model)
    return oracle.full_tensors(model)


def states(model, optimizer, wrapped, engine):
    """"NAME|STATE" -> the optimizer's tensors; of FSDP1's flat parameters nothing."""
    if engine[0] == "z":
        return cpu_deepspeed.states(wrapped)
    if engine == "f1":
        return {}
    optimizer = getattr(optimizer, "optimizer", optimizer)
    return {f"{n}|{k}": oracle.full(v) for n, p in model.named_parameters()
            for k, v in optimizer.state.get(p, {}).items()}


plain_model = functools.cache(peft_models.adapted)  # takes the tensors of one run after the other


def witness(out, step, method, engine, model, optimizer, wrapped):
    """Every rank calls it."""
    tensors, held = live(model, engine), states(model, optimizer, wrapped, engine)
    if rank() == 0:
        oracle.write(tensors, f"{out}/live-{step}.safetensors")
        oracle.write(held, f"{out}/states-{step}.safetensors")
        plain = plain_model(method)
        plain.load_state_dict(tensors, strict=True)
        plain.save_pretrained(f"{out}/adapter-{step}", selected_adapters=[plain.active_adapter])
        plain.peft_config[plain.active_adapter].save_pretrained(f"{out}/run")
    if dist.is_initialized():
        dist.barrier()


class Witness(TrainerCallback):
    def __init__(self, out, method, engine):
        self.how, self.trainer = (out, method, engine), None

    def on_save(self, args, state, control, **kwargs):
        out, method, engine = self.how
        if state.global_step > SAVED:
            return
        witness(out, state.global_step, method, engine, self.trainer.model, self.trainer.optimizer,
                self.trainer.model_wrapped)


def trainer(method, engine, out, source=None, universal=False):
    forget_last_run()
    args = TrainingArguments(
        f"{out}/run", use_cpu=True, per_device_train_batch_size=1, max_steps=STEPS, save_steps=SAVED,
        logging_steps=1, report_to="none", learning_rate=1e-2, weight_decay=0.01, disable_tqdm=True, seed=7,
        save_strategy="no" if source else "steps", **sharding(engine, universal))
    seen = Witness(out, method, engine)
    run = Trainer(model=peft_models.adapted(method), args=args, train_dataset=Tokens(),
                  callbacks=[] if source else [seen])
    seen.trainer = run
    run.train(resume_from_checkpoint=source)
    return [e["loss"] for e in run.state.log_history if "loss" in e and e["step"] > SAVED]


def accelerator_of(engine, universal):
    if engine[0] == "z":
        return Accelerator(deepspeed_plugin=DeepSpeedPlugin(hf_ds_config=zero(int(engine[1]), universal)))
    if engine == "plain":
        return Accelerator(cpu=True)
    return Accelerator(fsdp_plugin=FullyShardedDataParallelPlugin(
        fsdp_version=int(engine[1]), state_dict_type=state_dict_type(engine),
        auto_wrap_policy="TRANSFORMER_BASED_WRAP", transformer_cls_names_to_wrap=WRAPPED,
        cpu_ram_efficient_loading=False,
        **({"sync_module_states": False, "use_orig_params": True} if engine[1] == "1" else {})))


def accelerate(method, engine, out, source=None, universal=False):
    forget_last_run()
    accelerator = accelerator_of(engine, universal)
    model = peft_models.adapted(method)
    optimizer = torch.optim.AdamW((p for p in model.parameters() if p.requires_grad), lr=1e-2)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda n: 1 / (1 + n))
    model, optimizer, schedule = accelerator.prepare(model, optimizer, schedule)
    if source:
        accelerator.load_state(source)
    losses = []
    for step in range(SAVED if source else 0, STEPS):
        ids = Tokens()[2 * step + rank()]["input_ids"][None]
        loss = model(input_ids=ids, labels=ids).loss
        accelerator.backward(loss)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
        losses.append(float(loss.detach()))
        if step + 1 == SAVED and not source:
            accelerator.save_state(f"{out}/run/state")
            witness(out, SAVED, method, engine, accelerator.unwrap_model(model) if engine[0] == "z" else model,
                    optimizer, model)
    return losses[-(STEPS - SAVED):]


def run(case, out, source=None, universal=False):
    method, *acc, engine = case.split("-")
    return (accelerate if acc else trainer)(method, engine, out, source, universal)


def dump(path, value):
    if rank() == 0:
        with open(path, "w") as f:
            json.dump(value, f)


if __name__ == "__main__":
    base, cases = sys.argv[1], sys.argv[2:]
    for one in cases:
        if not one.startswith("resume:"):
            dump(f"{base}/{one}.json", run(one, f"{base}/{one}"))
            continue
        _, case, source, name, *universal = one.split(":")
        try:
            result = run(case, f"{base}/{name}", source, bool(universal))
        except Exception as e:
            result = f"{type(e).__name__}: {e}"
        print(name, result, flush=True)
        dump(f"{base}/{name}.json", result)
    leave()
