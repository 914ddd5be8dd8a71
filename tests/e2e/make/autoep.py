"""Plain DeepSpeed engines with AutoEP, which replaces the mixture-of-experts layers of a transformers model and shares their
experts out; several in one launch:

    torchrun --nproc_per_node=W autoep.py OUT CASE...

CASE is FAMILY-STAGE-DTYPE-epN (mixtral-z2-bf16-ep2: N ranks share the experts). Each trains a few steps and leaves
    OUT/CASE/run/{config.json,latest,global_step3/..}   what a user has
    OUT/CASE/{states,live}.safetensors                  the optimizer's and the model's tensors at that time, gathered from all
                                                        ranks: experts that AutoEP shared out are one tensor again
    OUT/CASE/info.json                                  the losses of the steps after that
"load:CASE:DIRECTORY:NAME[:universal]" loads DIRECTORY with the settings of CASE instead, into weights that are initialised
otherwise: OUT/NAME/{states,live}.safetensors and OUT/NAME/info.json. "refused:CASE:DIRECTORY:NAME[:universal]":
OUT/NAME/refused-RANK.txt, what each rank raised.
"""

import json
import os
import sys

import cpu_deepspeed
import deepspeed
import torch
import torch.distributed as dist
from deepspeed.utils import groups
from safetensors.torch import save_file
from transformers.utils import output_capturing

from leaving import leave

VOCAB = 61

# DeepSpeed 0.19 uses the registry as the plain dict that it was before transformers 5.23: by names of classes.
registry = output_capturing._CAN_RECORD_REGISTRY
output_capturing._CAN_RECORD_REGISTRY = type("Registry", (dict,), {
    "get": lambda self, key, default=None: dict.get(self, key if isinstance(key, str) else str(type(key)), default) or {},
})(registry)


def mixtral():
    from transformers import MixtralConfig, MixtralForCausalLM

    return MixtralForCausalLM(MixtralConfig(
        vocab_size=VOCAB, hidden_size=16, intermediate_size=12, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=1, num_local_experts=4, num_experts_per_tok=2, max_position_embeddings=32,
        bos_token_id=1, eos_token_id=2, pad_token_id=0))


def qwen3_moe():
    from transformers import Qwen3MoeConfig, Qwen3MoeForCausalLM

    return Qwen3MoeForCausalLM(Qwen3MoeConfig(
        vocab_size=VOCAB, hidden_size=16, intermediate_size=20, moe_intermediate_size=12, num_hidden_layers=2,
        num_attention_heads=2, num_key_value_heads=1, head_dim=8, num_experts=4, num_experts_per_tok=2,
        mlp_only_layers=[0], max_position_embeddings=32, bos_token_id=1, eos_token_id=2, pad_token_id=0))


def qwen2_moe():
    from transformers import Qwen2MoeConfig, Qwen2MoeForCausalLM

    return Qwen2MoeForCausalLM(Qwen2MoeConfig(
        vocab_size=VOCAB, hidden_size=16, intermediate_size=20, moe_intermediate_size=12, num_hidden_layers=1,
        shared_expert_intermediate_size=10, num_attention_heads=2, num_key_value_heads=1, num_experts=4,
        num_experts_per_tok=2, max_position_embeddings=32, bos_token_id=1, eos_token_id=2, pad_token_id=0))


def deepseek_v3():
    from transformers import DeepseekV3Config, DeepseekV3ForCausalLM

    return DeepseekV3ForCausalLM(DeepseekV3Config(
        vocab_size=VOCAB, hidden_size=16, intermediate_size=20, moe_intermediate_size=12, num_hidden_layers=2,
        num_attention_heads=2, num_key_value_heads=2, n_routed_experts=4, n_shared_experts=1, num_experts_per_tok=2,
        n_group=1, topk_group=1, kv_lora_rank=8, q_lora_rank=8, qk_rope_head_dim=4, qk_nope_head_dim=4, v_head_dim=8,
        first_k_dense_replace=1, max_position_embeddings=32, bos_token_id=1, eos_token_id=2, pad_token_id=0))


def config(case, universal):
    _, stage, dtype, shared_by = case.split("-")[:4]
    zero = {"stage": int(stage[1]), "reduce_bucket_size": 100000}
    if stage == "z3":
        zero["stage3_param_persistence_threshold"] = 0
    out = {"train_micro_batch_size_per_gpu": 1, "zero_allow_untested_optimizer": True,
           "zero_force_ds_cpu_optimizer": False, "steps_per_print": 10 ** 9, "zero_optimization": zero,
           "bf16": {"enabled": dtype == "bf16"},
           "optimizer": {"type": "AdamW", "params": {"lr": 1e-2, "betas": [0.9, 0.99], "torch_adam": True}},
           "expert_parallel": {"enabled": True, "autoep_size": int(shared_by[2:]), "use_grouped_mm": False}}
    if universal:
        out["checkpoint"] = {"load_universal": True}
    return out


def engine_of(case, other=False, universal=False):
    """other: initialised otherwise."""
    torch.manual_seed(1)
    model = globals()[case.split("-")[0]]()
    for p in model.parameters() if other else ():
        p.data += 1
    decay = [p for p in model.parameters() if p.dim() >= 2]
    rest = [p for p in model.parameters() if p.dim() < 2]
    settings = [{"params": decay, "lr": 1e-2, "weight_decay": 0.1, "name": "decay"},
                {"params": rest, "lr": 2.5e-3, "weight_decay": 0.0, "name": "rest"}]
    return deepspeed.initialize(model=model, model_parameters=settings, config=config(case, universal),
                                lr_scheduler=lambda o: torch.optim.lr_scheduler.LambdaLR(o, lambda n: 1 / (1 + n)))[0]


def whole(engine, held):
    """The ranks' tensors as one model's: what experts of different ranks hold follows in their order."""
    kept = [None] * dist.get_world_size()
    dist.all_gather_object(kept, (groups._get_expert_parallel_rank(groups._get_max_expert_size_name()), held))
    of = {rank: tensors for rank, tensors in reversed(kept)}
    return {n: torch.cat([of[r][n] for r in sorted(of)]) if ".experts.w" in n else t for n, t in of[0].items()}


def write(engine, out):
    states, live = whole(engine, cpu_deepspeed.states(engine)), whole(engine, cpu_deepspeed.tensors(engine.module))
    if dist.get_rank() == 0:
        os.makedirs(out, exist_ok=True)
        save_file({n: t.clone().contiguous() for n, t in states.items()}, f"{out}/states.safetensors")
        save_file({n: t.clone().contiguous() for n, t in live.items()}, f"{out}/live.safetensors")
    dist.barrier()


def steps(engine, seed, n):
    g = torch.Generator().manual_seed(seed + dist.get_rank())
    losses = []
    for _ in range(n):
        ids = torch.randint(3, VOCAB, (1, 9), generator=g)
        loss = engine(input_ids=ids, labels=ids).loss
        engine.backward(loss)
        engine.step()
        losses.append(float(loss.detach()))
    return losses


def go_on(engine, out):
    facts = {"global_steps": engine.global_steps, "lr": engine.lr_scheduler.get_last_lr(), "losses": steps(engine, 500, 2)}
    if dist.get_rank() == 0:
        with open(f"{out}/info.json", "w") as f:
            json.dump(facts, f)
    dist.barrier()


def train(case, out):
    engine = engine_of(case)
    steps(engine, 100, 3)
    engine.save_checkpoint(f"{out}/run", client_state={"epoch": 7})
    if dist.get_rank() == 0:
        engine.module.config.save_pretrained(f"{out}/run")
    write(engine, out)
    go_on(engine, out)


def load(case, source, out, universal):
    engine = engine_of(case, True, universal)
    path, _ = engine.load_checkpoint(source)
    assert path, source
    if universal and "z3" in case:  # as problems.txt of a universal view says it
        for state in engine.optimizer.optimizer.state.values():
            state["step"] = state["step"].clone()
        for group, rate in zip(engine.optimizer.param_groups, engine.lr_scheduler.get_last_lr()):
            group["lr"] = rate
    write(engine, out)
    go_on(engine, out)


def refused(case, source, out, universal):
    try:
        engine_of(case, True, universal).load_checkpoint(source)
        said = "nothing"
    except Exception as e:
        said = f"{type(e).__name__}: {e}"
    os.makedirs(out, exist_ok=True)
    with open(f"{out}/refused-{dist.get_rank()}.txt", "w") as f:
        f.write(said)
    dist.barrier()


if __name__ == "__main__":
    deepspeed.init_distributed("gloo")
    base, cases = sys.argv[1], sys.argv[2:]
    for one in cases:
        groups._EXPERT_PARALLEL_GROUP.clear()
        groups._EXPERT_DATA_PARALLEL_GROUP.clear()
        if ":" in one:
            what, case, source, name, *universal = one.split(":")
            {"load": load, "refused": refused}[what](case, source, f"{base}/{name}", bool(universal))
        else:
            train(one, f"{base}/{one}")
    leave()
