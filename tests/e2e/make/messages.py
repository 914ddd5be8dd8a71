"""What frameworks print when they are given the wrong thing of a mount: messages.py OUT MOUNT SOURCE

MOUNT shows `bare`, a run with no config.json, `whole`, one that has it, and `damaged`, which lacks a shard. OUT becomes {case: "Type: message"}."""

import json
import os
import sys

import torch
import torch.distributed.checkpoint as dcp
from accelerate import Accelerator
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, Trainer, TrainingArguments

out, mnt, source = sys.argv[1:]
CHECKPOINT = "checkpoint-2"


def model():
    return AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(f"{mnt}/weights/whole/{CHECKPOINT}"))


def trained(path, output):
    data = [{"input_ids": torch.arange(i, i + 4), "labels": torch.arange(i, i + 4)} for i in range(3, 11)]
    Trainer(model=model(), train_dataset=data, args=TrainingArguments(
        output, use_cpu=True, max_steps=3, report_to="none", disable_tqdm=True, save_strategy="no")).train(resume_from_checkpoint=path)


def loaded_state(path):
    accelerator = Accelerator(cpu=True)
    accelerator.prepare(model())
    accelerator.load_state(path)


CASES = {
    "no config": lambda: AutoModelForCausalLM.from_pretrained(f"{mnt}/weights/bare/{CHECKPOINT}"),
    "no path": lambda: AutoModelForCausalLM.from_pretrained(f"{mnt}/weights/absent/{CHECKPOINT}"),
    "no tokenizer": lambda: AutoTokenizer.from_pretrained(f"{mnt}/weights/bare/{CHECKPOINT}"),
    "view of a trainer": lambda: AutoModelForCausalLM.from_pretrained(f"{mnt}/dcp/whole/{CHECKPOINT}"),
    "source to from_pretrained": lambda: AutoModelForCausalLM.from_pretrained(f"{source}/whole/{CHECKPOINT}"),
    "no checkpoint to resume": lambda: trained(f"{mnt}/full/absent/{CHECKPOINT}", f"{out}.run"),
    "resume from weights": lambda: trained(f"{mnt}/weights/whole/{CHECKPOINT}", f"{out}.run"),
    "resume from the source": lambda: trained(f"{source}/whole/{CHECKPOINT}", f"{out}.run"),
    "output_dir in the mount": lambda: os.makedirs(f"{mnt}/full/whole/next"),
    "dcp of a full view": lambda: dcp.load({"model": {"a": torch.zeros(1)}}, checkpoint_id=f"{mnt}/full/whole/{CHECKPOINT}"),
    "dcp without its key": lambda: dcp.load({"model": {"a": torch.zeros(1)}},
                                            checkpoint_id=f"{mnt}/dcp/whole/{CHECKPOINT}/pytorch_model_fsdp_0"),
    "state from weights": lambda: loaded_state(f"{mnt}/dcp/whole/{CHECKPOINT}"),
    "damaged": lambda: AutoModelForCausalLM.from_pretrained(f"{mnt}/weights/damaged/{CHECKPOINT}"),
    "universal": lambda: AutoModelForCausalLM.from_pretrained(f"{mnt}/universal/whole/{CHECKPOINT}",
                                                              config=f"{mnt}/weights/whole/{CHECKPOINT}"),
}

if __name__ == "__main__":
    said = {}
    for name, run in CASES.items():
        try:
            run()
            said[name] = "nothing"
        except BaseException as e:
            said[name] = f"{type(e).__name__}: {e}"
    with open(out, "w", encoding="utf-8") as file:
        json.dump(said, file)
    os._exit(0)
