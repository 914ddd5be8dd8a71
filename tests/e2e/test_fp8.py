"""The view weights-fp8: matrices of linear layers as e4m3 with a scale for each block, against torch and transformers, to the
byte; loaded by transformers."""

import errno
import json
import os
import sys
from types import SimpleNamespace

import pytest
import torch
import torch.distributed.checkpoint as dcp
from safetensors import safe_open
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM, FineGrainedFP8Config, LlamaConfig, LlamaForCausalLM, Qwen3MoeConfig, Qwen3MoeForCausalLM
from transformers.integrations.finegrained_fp8 import Fp8Dequantize, Fp8Quantize

import conftest
import trees

sys.path.insert(0, str(conftest.ROOT / "python"))
os.environ.setdefault("UNSHARD_LIBRARY", str(conftest.ROOT / "build/dev/lib/libunshard.so.0"))
import unshard  # noqa: E402

Q = "model.layers.0.self_attn.q_proj.weight"
DTYPES = [torch.bfloat16, torch.float16, torch.float32]
SHAPES = [(1, 1), (128, 128), (127, 129), (129, 127), (300, 517), (1, 300), (257, 1), (576, 256), (256, 384)]


def formula(w):
    """Fp8Quantize's, of a matrix with any number of rows and columns: zeros fill its last blocks."""
    rows, columns = w.shape
    x = torch.zeros(-(-rows // 128) * 128, -(-columns // 128) * 128)
    x[:rows, :columns] = w.float()
    x = x.reshape(x.shape[0] // 128, 128, x.shape[1] // 128, 128)
    most = x.abs().amax(dim=(1, 3))
    scale = torch.where(most > 0, 448 / torch.where(most > 0, most, 1), torch.ones_like(most))
    q = (x * scale[:, None, :, None]).clamp(-448, 448).to(torch.float8_e4m3fn)
    return q.reshape(q.shape[0] * 128, -1)[:rows, :columns], 1.0 / scale


def by_transformers(w):
    quantizer = SimpleNamespace(quantization_config=FineGrainedFP8Config())
    made = Fp8Quantize(quantizer).convert({Q: w})
    return made[Q], made[Q + "_scale_inv"]


def same(a, b):
    return a.dtype == b.dtype and a.shape == b.shape and torch.equal(a.contiguous().view(torch.uint8), b.contiguous().view(torch.uint8))


def numbers(shape, dtype, seed):
    """Of many magnitudes; a block of zeros; the least and the largest numbers."""
    generator = torch.Generator().manual_seed(seed)
    w = torch.randn(shape, generator=generator) * 10 ** torch.empty(shape).uniform_(-6, 3, generator=generator)
    w = w.to(dtype)
    flat = w.view(-1)
    flat[-1], flat[0] = torch.finfo(dtype).max, torch.finfo(dtype).tiny / 2
    w[:128, :128] *= w.shape != (256, 384)
    return w


def save(where, tensors, config=None):
    where.mkdir(parents=True)
    save_file(tensors, where / "model.safetensors", metadata={"format": "pt"})
    (where / "config.json").write_text(json.dumps(config or {"model_type": "llama", "hidden_size": 1}))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_every_byte(mount, tmp_path, dtype):
    want = {}
    for i, shape in enumerate(SHAPES):
        want[f"model.layers.{i}.mlp.up_proj.weight"] = numbers(shape, dtype, i)
    save(tmp_path / "run/checkpoint-1", want)
    shown = trees.weights(mount(tmp_path) / "weights-fp8/run/checkpoint-1")
    assert len(shown) == 2 * len(want)
    for name, w in want.items():
        q, inverse = formula(w)
        assert same(shown[name], q) and same(shown[name + "_scale_inv"], inverse), name
        if all(n % 128 == 0 for n in w.shape):
            assert same(q, by_transformers(w)[0]) and same(inverse, by_transformers(w)[1]), name
    q, inverse = formula(torch.randn(576, 256))
    with pytest.raises(ValueError, match=r"\(576, 256\) not divisible by scale grid \(5, 2\)"):  # docs/fp8.md
        Fp8Dequantize(None)._dequantize_one(q, inverse)


def test_numbers_that_are_none(mount, tmp_path):
    """Infinity, NaN, and blocks of subnormal numbers, for which a scale overflows."""
    w = torch.randn(128, 640)
    w[3, 5], w[7, 130], w[9, 140], w[1, 300] = float("inf"), float("nan"), float("inf"), -float("nan")
    w[:, 384:512] = 1e-41
    save(tmp_path / "run/checkpoint-1", {Q: w})
    shown = trees.weights(mount(tmp_path) / "weights-fp8/run/checkpoint-1")
    q, inverse = formula(w)
    assert torch.equal(shown[Q].float().nan_to_num(9999), q.float().nan_to_num(9999))
    assert torch.equal(shown[Q + "_scale_inv"].nan_to_num(9999), inverse.nan_to_num(9999)) and inverse.isinf().any()


def llama(tie=False):
    torch.manual_seed(7)
    return LlamaForCausalLM(LlamaConfig(hidden_size=128, intermediate_size=256, num_hidden_layers=2, num_attention_heads=2,
                                        num_key_value_heads=2, head_dim=64, vocab_size=64, tie_word_embeddings=tie))


def moe():
    torch.manual_seed(7)
    return Qwen3MoeForCausalLM(Qwen3MoeConfig(hidden_size=128, intermediate_size=256, moe_intermediate_size=128, num_hidden_layers=2,
                                              num_attention_heads=2, num_key_value_heads=2, head_dim=64, vocab_size=64, num_experts=4,
                                              num_experts_per_tok=2))


def save_dcp(where, model):
    dcp.save({"model": model.state_dict()}, checkpoint_id=where / "pytorch_model_fsdp_0", no_dist=True)
    model.config.save_pretrained(where)


@pytest.mark.parametrize("make, dtype", [(llama, torch.bfloat16), (lambda: llama(True), torch.float32), (moe, torch.bfloat16)],
                         ids=["llama", "tied", "moe"])
def test_loaded_by_transformers(mount, command, tmp_path, make, dtype):
    model = make().to(dtype)
    save_dcp(tmp_path / "runs/run/checkpoint-2", model)
    m = mount(tmp_path / "runs")
    where = m / "weights-fp8/run/checkpoint-2"
    published, shown = trees.weights(m / "weights/run/checkpoint-2"), trees.weights(where)
    config = json.loads((where / "config.json").read_text())["quantization_config"]
    kept = set(config.pop("modules_to_not_convert"))
    assert config == {"activation_scheme": "dynamic", "fmt": "e4m3", "quant_method": "fp8", "weight_block_size": [128, 128]}
    scaled = {n for n in shown if n + "_scale_inv" in shown}
    left = {n.removesuffix(".weight") for n, t in published.items() if n not in scaled and t.ndim > 1}
    assert kept == left | {"lm_head"} and "model.embed_tokens" in kept
    assert make is not moe or "model.layers.0.mlp.gate" in kept
    assert set(published) == {n for n in shown if not n.endswith("_scale_inv")}
    assert all(same(shown[n], t) for n, t in published.items() if n not in scaled)
    linear = [n for n, mod in model.named_modules() if isinstance(mod, torch.nn.Linear)]
    assert {n for n in linear if n + ".weight" not in scaled} == {n for n in linear if n in kept}

    loaded, said = AutoModelForCausalLM.from_pretrained(where, quantization_config=FineGrainedFP8Config(dequantize=True), dtype=dtype,
                                                        output_loading_info=True)
    assert not any(said[k] for k in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    by_hand = dict(published)
    for n in scaled:
        q, inverse = formula(published[n])
        by_hand[n] = Fp8Dequantize(None)._dequantize_one(q, inverse, dtype)
    (tmp_path / "by_hand").mkdir()
    save_file(by_hand, tmp_path / "by_hand/model.safetensors", metadata={"format": "pt"})
    model.config.save_pretrained(tmp_path / "by_hand")
    want = AutoModelForCausalLM.from_pretrained(tmp_path / "by_hand", dtype=dtype)
    trees.assert_same(loaded.state_dict(), want.state_dict())
    ids = torch.arange(12).reshape(1, 12)
    assert torch.equal(loaded(ids).logits, want(ids).logits)
    command("export", tmp_path / "runs/run/checkpoint-2", tmp_path / "out", "--view", "weights-fp8")
    exported = trees.weights(tmp_path / "out")
    assert exported.keys() == shown.keys() and all(same(exported[n], t) for n, t in shown.items())
    size = {n: t.nbytes for n, t in published.items()}
    cost = (sum(size.values()) + sum(size[n] for n in scaled)) / sum(t.nbytes for t in shown.values())
    said = json.loads(command("show", tmp_path / "runs/run/checkpoint-2", "--json", "-o", "view=weights-fp8").stdout)
    assert (f"{2 * len(scaled)} tensors are computed when they are read: in all, {cost:.2f} bytes are read for each byte shown"
            in said["info"]["views"]["weights-fp8"]["notes"])
    said = (where / ".unshard/provenance.json").read_text()
    assert f"{len(scaled)} matrices are e4m3 with a scale for each block of 128 x 128" in said


def test_slices_and_python(mount, tmp_path):
    """Rows alone are scaled as in the whole matrix."""
    w = numbers((300, 517), torch.bfloat16, 5)
    save(tmp_path / "run/checkpoint-1", {Q: w})
    q, inverse = formula(w)
    with safe_open(mount(tmp_path) / "weights-fp8/run/checkpoint-1/model.safetensors", framework="pt") as f:
        for rows, columns in ((slice(200, 203), slice(100, 400)), (slice(127, 129), slice(516, 517)), (slice(0, 300), slice(0, 1))):
            assert same(f.get_slice(Q)[rows, columns], q[rows, columns])
        assert same(f.get_slice(Q + "_scale_inv")[2:3, 1:4], inverse[2:3, 1:4])
    with unshard.open(tmp_path, settle_seconds=0) as session:
        tensors = session.tensors("run/checkpoint-1", "weights-fp8")
        assert same(torch.frombuffer(tensors[Q].read(), dtype=torch.float8_e4m3fn).reshape(300, 517), q)
        assert same(torch.frombuffer(tensors[Q + "_scale_inv"].read(), dtype=torch.float32).reshape(3, 5), inverse)


def test_what_cannot_be_quantised(command, mount, tmp_path):
    def cause():
        said = json.loads(command("show", tmp_path / "run/checkpoint-1", "--json", "-o", "view=weights-fp8,settle=0", check=False).stdout)
        view = said["info"]["views"]["weights-fp8"]
        assert view["state"] == "none" and view["why_id"] == "not_quantised", view
        return view["why"]
    save(tmp_path / "run/checkpoint-1", {Q: torch.ones(2, 2)})
    config = tmp_path / "run/checkpoint-1/config.json"
    config.write_text(json.dumps({"model_type": "llama", "quantization_config": {}}))
    assert "quantised already" in cause()
    config.unlink()
    assert "needs a config.json" in cause()
    save_file({"transformer.h.0.attn.c_attn.weight": torch.ones(2, 2)}, tmp_path / "run/checkpoint-1/model.safetensors")
    config.write_text(json.dumps({"model_type": "gpt2"}))
    assert "no tensor of it is known as a linear projection" in cause()
    assert not (mount(tmp_path) / "weights-fp8/run/checkpoint-1/model.safetensors").exists()


def test_a_matrix_that_changes(mount, tmp_path, eventually):
    """Also if the scales of its rows were found before: they are the first that the file has."""
    where = tmp_path / "run/checkpoint-1"
    w = torch.randn(2048, 8192).bfloat16()
    save(where, {Q: w})
    shown = mount(tmp_path, changing=True) / "weights-fp8/run/checkpoint-1/model.safetensors"
    with open(shown, "rb", buffering=0) as f:
        f.read(5000)
        w[-1] = 7
        with open(where / "model.safetensors", "r+b") as shard:  # the file itself, not another of its name
            shard.seek(-w[-1].nbytes, os.SEEK_END)
            shard.write(w[-1].view(torch.uint8).numpy().tobytes())
        f.seek(12 << 20)  # further than the kernel reads ahead
        with pytest.raises(OSError) as failed:
            f.read(1 << 20)
        assert failed.value.errno == errno.ESTALE
    eventually(lambda: same(trees.tensors(shown)[Q], formula(w)[0]))


def test_memory_does_not_depend_on_the_model(mount, tmp_path):
    """Sparse files of 64 and of 512 MB."""
    peaks = []
    for size in (64 << 20, 512 << 20):
        where = tmp_path / f"{size}/run/checkpoint-3"
        trees.sparse(where, Q, [size // 4096, 1024])
        (where / "config.json").write_text(json.dumps({"model_type": "llama"}))
        m = mount(tmp_path / str(size), "store=none")
        with open(m / "weights-fp8/run/checkpoint-3/model.safetensors", "rb", buffering=0) as f:
            while part := f.read(1 << 20):
                last = part
        assert last[-100:] == bytes(100)
        peaks.append(m.rss_bytes())
    assert peaks[1] < peaks[0] + 16e6, peaks  # which threads read, and so their buffers, differs
