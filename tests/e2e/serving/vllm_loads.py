"""vLLM loads models from checkpoints, on the CPU, in its own environment: vllm_loads.py TOP RESULT

TOP is what make/serving_source.py makes of one family. What vLLM loads from the checkpoints must be what it loads from
the directories that the framework itself saved, and give the same logits. RESULT is JSON: for each number of ranks, with expert parallelism and
without, the bytes that unshard read for each rank, by which operations, and the shape of a rank's experts, which vLLM pads."""

import json
import os
import runpy
import sys
from pathlib import Path

import torch
import torch.nn.functional as F

PROGRAM = runpy.run_path(str(Path(__file__).parents[1] / "programs/vllm.py"))
KERNELS = PROGRAM["prepare"]()

from vllm.config import set_current_vllm_config  # noqa: E402
from vllm.distributed import parallel_state  # noqa: E402
from vllm.forward_context import set_forward_context  # noqa: E402
from vllm.model_executor.custom_op import CustomOp  # noqa: E402
from vllm.model_executor.layers.attention.attention import Attention  # noqa: E402
from vllm.model_executor.model_loader.reload.inplace import reload_weights  # noqa: E402
from vllm.plugins import load_general_plugins  # noqa: E402
import transformers  # noqa: E402

from unshard import slices  # noqa: E402

TOP, RESULT = sys.argv[1:]
SEEN = []


class Seen(slices.Counts):
    """Counts that are looked at."""

    def __init__(self):
        super().__init__()
        SEEN.append(self)


def loaded(model, load_format, size=1, expert_parallel=False, **extra):
    return PROGRAM["loaded"](f"{TOP}/{model}", f"{TOP}/run", load_format, os.path.dirname(RESULT), size,
                             expert_parallel, **extra)


def rank_is(rank, size):
    """Layers are built as this rank of a group builds them. There are no other ranks: nothing is sent."""
    for group in (parallel_state._TP, parallel_state._EP):
        if group is not None:
            group.rank_in_group, group.world_size = rank, size


def state(model):
    return {name: t for of in (model.named_parameters(), model.named_buffers()) for name, t in of}


def must_be(model, want):
    got, want = state(model), state(want)
    assert got.keys() == want.keys() and got
    assert not [name for name, t in want.items() if not torch.equal(got[name], t)]


# The package for no device lacks the kernels of attention and of experts: they are written in torch here. All other
# layers are vLLM's own, in its implementations without kernels.
KERNELS.define("cpu_fused_moe(Tensor(a!) out, Tensor input, Tensor w13, Tensor w2, Tensor? w13_bias, Tensor? w2_bias, "
               "Tensor topk_weights, Tensor topk_ids, bool skip_weighted, str act, str isa) -> ()")


@torch.library.impl(KERNELS, "cpu_fused_moe", "CPU")
def experts_of(out, hidden, w13, w2, _w13_bias, _w2_bias, share, chosen, _skip_weighted, act, _isa):
    assert act == "silu"
    gate, up = torch.einsum("ti,tkoi->tko", hidden, w13[chosen.long()]).chunk(2, -1)
    each = torch.einsum("tki,tkoi->tko", F.silu(gate) * up, w2[chosen.long()])
    out.copy_((each * share[..., None].to(each.dtype)).sum(1))


def attend(self, query, key, value, output_shape=None, output_dtype=None):
    q, k, v = (t.view(len(t), -1, self.head_size).transpose(0, 1) for t in (query, key, value))
    found = F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=self.impl.scale, enable_gqa=True)
    return found.transpose(0, 1).reshape(len(query), -1)


def logits(config, model, tokens):
    Attention.forward = attend
    for layer in model.modules():
        if isinstance(layer, CustomOp):
            layer._forward_method = layer.forward_native
    positions = torch.arange(len(tokens))
    if config.model_config.uses_mrope:
        positions = positions.expand(3, -1)
    with torch.no_grad(), set_current_vllm_config(config), set_forward_context(None, config):
        return model.compute_logits(model(torch.tensor(tokens), positions))


def must_answer_alike(of_1, of_2):
    """Logits are those of the weights that vLLM itself loaded, bit for bit, and near those of transformers."""
    tokens = list(range(5, 25))
    want, other = logits(*of_1, tokens), logits(*of_2, tokens)
    assert not torch.equal(want, other)
    for path, extra, equal_to in (("checkpoint-1", {}, want), ("checkpoint-1", {"slices": True}, want), ("checkpoint-2", {}, other)):
        assert torch.equal(logits(*loaded(f"run/{path}", "unshard", **extra), tokens), equal_to)
    auto = transformers.AutoModelForImageTextToText if "vl" in os.path.basename(TOP) else transformers.AutoModelForCausalLM
    theirs = auto.from_pretrained(f"{TOP}/native-1", dtype=torch.bfloat16)(torch.tensor([tokens])).logits[0]
    assert (theirs - want).abs().max() < theirs.abs().max() / 50  # 0.009 to 0.013 of it: other kernels, in bfloat16


def must_reload(want_1, want_2, **extra):
    """By the path of another checkpoint, which vLLM is told."""
    config, model = loaded("run/checkpoint-1", "unshard", **extra)
    must_be(model, want_1)
    for path, want in (("latest", want_2), ("checkpoint-1", want_1), (None, want_1)):
        for t in model.parameters():  # as sleep level 2 leaves them
            t.data.fill_(7)
        reload_weights(config, model, None, path and f"{TOP}/run/{path}", True)
        must_be(model, want)


def must_take_split_experts(want):
    for slices_or_whole in (True, False):
        must_be(loaded("run/checkpoint-1", "unshard", experts="split", slices=slices_or_whole)[1], want)


def cut(size, experts):
    """What each rank of a group reads."""
    SEEN.clear()
    for rank in range(size):
        rank_is(rank, size)
        _, want = loaded("native-1", "auto", size, experts)
        _, model = loaded("run/checkpoint-1", "unshard", size, experts, slices=True)
        must_be(model, want)
    shapes = {name: list(t.shape) for name, t in model.named_parameters() if ".layers.0." in name and name.endswith("w2_weight")}
    return [{"read": c.bytes_read, "in_vain": c.bytes_in_vain, "operations": c.operations, "experts": [*shapes.values()]}
            for c in SEEN]


def main():
    load_general_plugins()
    slices.Counts = Seen
    config_1, want_1 = loaded("native-1", "auto")
    config_2, want_2 = loaded("native-2", "auto")
    must_answer_alike((config_1, want_1), (config_2, want_2))
    if os.path.basename(TOP) == "mixtral":
        must_take_split_experts(want_1)
    for extra in ({}, {"slices": True}, {"enable_weights_track": True, "threads": 1}):
        must_reload(want_1, want_2, **extra)
    found = {f"{size} {'experts' if experts else 'tensors'}": cut(size, experts)
             for experts in (False, True) for size in (2, 4, 8)}
    with open(RESULT, "w") as f:
        json.dump(found, f, indent=1)


if __name__ == "__main__":
    main()
