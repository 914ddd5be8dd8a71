#!/usr/bin/env python3
"""Make the fixtures of this folder with the real DeepSpeed (0.19.8, torch 2.13, gloo on the CPU).

    make.py OUT [CASE..]   runs itself once a rank

A tiny model with what makes ZeRO awkward: a tied head, a frozen layer, an int and a float buffer, parameters
that no world size divides, two param groups. expected.txt holds weights and fp32 copies as the live engine gave
them, asked parameter by parameter, and moments as ds_to_universal put them together; bytes in hexadecimal:

    ROLE NAME DTYPE SHAPE GROUP BYTES
"""
import os
import shutil
import socket
import subprocess
import sys

CASES = {  # name: world size, stage, extra of zero_optimization, extra of the config
    "z2_w3": (3, 2, {"parameter_alignment": True}, {}),
    "z3_w2": (2, 3, {"sub_group_size": 16, "stage3_param_persistence_threshold": 0}, {}),
    "z1_bf16_optimizer_w2": (2, 1, {}, {"data_types": {"grad_accum_dtype": "fp32"}}),
    "z0_w1": (1, 0, {}, {}),
    "other": (1, 2, {}, {}),  # of another vocabulary; its optimizer is not kept
}
UNIVERSAL = ["z2_w3", "z3_w2"]


def launch(out, case):
    world = CASES[case][0]
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    ranks = []
    for r in range(world):
        env = dict(os.environ, RANK=str(r), LOCAL_RANK=str(r), WORLD_SIZE=str(world),
                   LOCAL_WORLD_SIZE=str(world), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port),
                   DS_ACCELERATOR="cpu", OMP_NUM_THREADS="1", UNSHARD_CASE=case)
        ranks.append(subprocess.Popen([sys.executable, __file__, out], env=env))
    if any([p.wait() for p in ranks]):
        sys.exit(case + " failed")


def build(rows):
    import torch
    from torch import nn

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.emb = nn.Embedding(rows, 3)
            self.frozen = nn.Linear(3, 3, bias=False).requires_grad_(False)
            self.up = nn.Linear(3, 5)
            self.down = nn.Linear(5, 3, bias=False)
            self.scale = nn.Parameter(torch.full((1,), 1.5))
            self.head = nn.Linear(3, rows, bias=False)
            self.head.weight = self.emb.weight
            self.register_buffer("calls", torch.tensor(5))
            self.register_buffer("mean", torch.linspace(0, 1, 3))

        def forward(self, ids):
            x = self.emb(ids)
            x = self.down(torch.relu(self.up(x + self.frozen(x)))) * self.scale - self.mean.to(x.dtype)
            return nn.functional.cross_entropy(self.head(x).float(), ids.view(-1))

    torch.manual_seed(1)
    return Model()


def hexed(t):
    import torch

    return t.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().tobytes().hex()


def train(out, case):
    import deepspeed
    import torch
    from deepspeed.utils import safe_get_full_fp32_param

    world, stage, zero, extra = CASES[case]
    deepspeed.init_distributed("gloo")
    model = build(9 if case == "other" else 7)
    trained = [(n, p) for n, p in model.named_parameters() if p.requires_grad]
    groups = [{"params": [p for _, p in trained if p.dim() > 1], "lr": 0.01, "weight_decay": 0.1},
              {"params": [p for _, p in trained if p.dim() < 2], "lr": 0.02, "weight_decay": 0.0}]
    group_of = {n: int(p.dim() < 2) for n, p in trained}
    config = {"train_micro_batch_size_per_gpu": 1, "zero_allow_untested_optimizer": True,
              "zero_force_ds_cpu_optimizer": False, "bf16": {"enabled": True},
              "zero_optimization": dict(zero, stage=stage), **extra}
    engine, *_ = deepspeed.initialize(model=model, optimizer=torch.optim.AdamW(groups),
                                      config=config)
    g = torch.Generator().manual_seed(engine.global_rank)
    for _ in range(2):
        engine.backward(engine(torch.randint(0, 7, (4,), generator=g)))
        engine.step()
    engine.save_checkpoint(os.path.join(out, case), client_state={"epoch": 7})

    lines = []

    def add(role, name, t, shape, group):
        dims = ",".join(map(str, shape)) or "-"
        lines.append(f"{role} {name} {str(t.dtype)[6:]} {dims} {group} {hexed(t)}")

    for n, p in engine.module.named_parameters(remove_duplicate=False):
        shape = tuple(getattr(p, "ds_shape", p.shape))
        with deepspeed.zero.GatheredParameters([p], enabled=stage == 3):
            add("weight", n, p.data, shape, group_of.get(n, -1))
    for n, p in engine.module.named_parameters():
        shape = tuple(getattr(p, "ds_shape", p.shape))
        if p.requires_grad and stage:
            add("master", n, safe_get_full_fp32_param(p), shape, group_of[n])
            add("step", n, torch.tensor(2.0), (), group_of[n])
    if not stage:
        names = [[n for n, p in trained if group_of[n] == g] for g in (0, 1)]
        for g, params in enumerate(engine.optimizer.fp32_groups):
            for n, p in zip(names[g], params):
                state = engine.optimizer.optimizer.state[p]
                add("master", n, p, p.shape, g)
                for s in ("exp_avg", "exp_avg_sq", "step"):
                    add(s, n, state[s], state[s].shape, g)
    for n, b in engine.module.named_buffers():
        add("buffer", n, b, b.shape, -1)
    if engine.global_rank == 0:
        with open(os.path.join(out, case, "expected.txt"), "w") as f:
            f.write("\n".join(lines) + "\n")
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()


def moments(out, case):
    """Append ds_to_universal's moments, in the order of the masters."""
    import torch

    path = os.path.join(out, case, "expected.txt")
    with open(path) as f:
        masters = [line.split() for line in f if line.startswith("master ")]
    with open(path, "a") as f:
        for _, name, _, dims, group, _ in masters:
            for s in ("exp_avg", "exp_avg_sq"):
                t = torch.load(os.path.join(out, case, "global_step2_universal", "zero", name, s + ".pt"))
                t = t["param"] if isinstance(t, dict) else t
                f.write(f"{s} {name} float32 {dims} {group} {hexed(t)}\n")


def universal(out, case):
    src = os.path.join(out, case, "global_step2")
    dst = os.path.join(out, case, "global_step2_universal")
    subprocess.run([sys.executable, "-m", "deepspeed.checkpoint.ds_to_universal", "--input_folder", src,
                    "--output_folder", dst, "--inject_missing_state", "--num_extract_workers", "1",
                    "--num_merge_workers", "1"], check=True, env=dict(os.environ, DS_ACCELERATOR="cpu"))


def main():
    out = sys.argv[1]
    if "UNSHARD_CASE" in os.environ:
        return train(out, os.environ["UNSHARD_CASE"])
    for case in sys.argv[2:] or CASES:
        shutil.rmtree(os.path.join(out, case), ignore_errors=True)
        os.makedirs(os.path.join(out, case))
        launch(out, case)
        for script in ("zero_to_fp32.py", "zero_to_torch.py"):
            if os.path.exists(os.path.join(out, case, script)):
                os.remove(os.path.join(out, case, script))
        if case == "other":
            for name in os.listdir(os.path.join(out, case)):
                if name not in ("global_step2", "expected.txt"):
                    os.remove(os.path.join(out, case, name))
            os.remove(os.path.join(out, case, "global_step2", "bf16_zero_pp_rank_0_mp_rank_00_optim_states.pt"))
        if case == "other" or not CASES[case][1]:
            continue
        universal(out, case)
        moments(out, case)
        if case not in UNIVERSAL:
            shutil.rmtree(os.path.join(out, case, "global_step2_universal"))
            os.remove(os.path.join(out, case, "latest_universal"))


if __name__ == "__main__":
    main()
