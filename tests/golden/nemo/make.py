"""context/model.yaml as NeMo 2 writes it, and the config that its exporter makes of it:

    python make.py DIR

DIR has nemo_toolkit 2.5.3, nemo_run 0.11.1 and fiddle 0.3.1 with what fiddle needs (absl-py, graphviz, libcst), put there
by `pip install --no-deps --target DIR ...`. Beside them: torch, transformers, megatron-core, lightning.

NeMo's own classes of configs and models are imported, and its own code writes the file (IOMixin._io_dump_yaml) and makes
the exporter's config. NeMo as a whole is not: packages that these modules import and do not use here are stubs.

CASE.yaml is the file for the model of that case of tests/e2e/make/torch_dist.py, CASE.json what the exporter's `config`
has. `load_context` is given the config that was written.
"""

import importlib
import importlib.abc
import importlib.machinery
import json
import logging
import os
import sys
import types
from pathlib import Path

import accelerate  # noqa: F401
import lightning.pytorch  # noqa: F401  before the stubs: what is installed stays what it is
import megatron.core.transformer.transformer_config  # noqa: F401
import requests  # noqa: F401
import torch
import torch._dynamo.utils  # noqa: F401
from transformers import (  # noqa: F401
    AutoModelForCausalLM, Gemma2Config, GemmaConfig, LlamaConfig, MistralConfig, MixtralConfig, Qwen2Config, Qwen3Config, Qwen3MoeConfig)

WHEELS, HERE = Path(sys.argv[1]).resolve(), Path(__file__).resolve().parent
sys.path.append(str(WHEELS))
import absl.logging  # noqa: E402,F401
import fiddle  # noqa: E402
import graphviz  # noqa: E402,F401
import libcst  # noqa: E402,F401


class Stubs(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Any module that is not installed: its attributes are classes that do nothing."""

    def find_spec(self, name, path=None, target=None):
        return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec):
        def attribute(name):
            if name.startswith("__"):
                raise AttributeError(name)
            return type(name, (), {"__module__": spec.name, "__init__": lambda self, *a, **k: None,
                                   "__class_getitem__": classmethod(lambda cls, item: cls),
                                   "__call__": lambda self, f=None, *a, **k: f})
        module = types.ModuleType(spec.name)
        module.__getattr__, module.__path__ = attribute, []
        return module

    def exec_module(self, module):
        pass


def package(name, real=True):
    """A package whose __init__ does not run; with `real`, the modules in it are its own."""
    module = Stubs().create_module(importlib.machinery.ModuleSpec(name, None))
    module.__path__ = [str(WHEELS / name.replace(".", "/"))] if real else []
    sys.modules[name] = module
    above, _, last = name.rpartition(".")
    if above:
        setattr(sys.modules[above], last, module)
    return module


sys.meta_path.append(Stubs())
for name in ("nemo_run", "nemo_run.core", "nemo_run.core.serialization", "nemo", "nemo.lightning", "nemo.utils",
             "nemo.collections", "nemo.collections.llm", "nemo.collections.llm.gpt", "nemo.collections.llm.gpt.model"):
    package(name)
io = package("nemo.lightning.io")
for name in ("nemo.lightning.pytorch", "nemo.lightning.megatron_parallel", "nemo.lightning.base", "nemo.lightning.io.pl",
             "nemo.lightning.ckpt_utils", "nemo.export", "nemo.collections.common", "nemo.collections.llm.utils"):
    package(name, real=False)
package("nemo.collections.llm.fn", real=False).FNMixin = type("FNMixin", (), {})
sys.modules["nemo.utils"].logging = logging.getLogger("nemo")

mixin = importlib.import_module("nemo.lightning.io.mixin")

io.IOMixin, io.ConnectorMixin = mixin.IOMixin, mixin.ConnectorMixin
io.model_importer = io.model_exporter = lambda *args, **kwargs: lambda cls: cls
io.ModelConnector = type("ModelConnector", (), {"__class_getitem__": classmethod(lambda cls, item: cls)})

gemma, gemma2, llama, mistral, mixtral, qwen2, qwen3 = (
    importlib.import_module(f"nemo.collections.llm.gpt.model.{name}")
    for name in ("gemma", "gemma2", "llama", "mistral", "mixtral", "qwen2", "qwen3"))

SIZES = {"num_layers": 2, "hidden_size": 16, "ffn_hidden_size": 24, "num_attention_heads": 4, "num_query_groups": 2,
         "kv_channels": 6, "vocab_size": 40, "seq_length": 64, "layernorm_epsilon": 1e-6, "init_method_std": 0.02,
         "rotary_base": 10000, "apply_rope_fusion": False}  # this fusion and that of permutations take Transformer Engine
POSITIONS = {"max_position_embeddings": 64}
EXPERTS = {"num_moe_experts": 4, "moe_router_topk": 2}
BF16 = {"bf16": True, "params_dtype": torch.bfloat16}
# case -> the class of the config, of the model, of the exporter, and what the config is called with
CASES = {
    "llama-tp2": (llama.Llama2Config7B, llama.LlamaModel, llama.HFLlamaExporter, {}),
    "llama31": (llama.Llama31Config8B, llama.LlamaModel, llama.HFLlamaExporter, {"rotary_base": 500000, "scale_factor": 32.0}),
    "llama32": (llama.Llama32Config1B, llama.LlamaModel, llama.HFLlamaExporter, {"vocab_size": None, "share_embeddings_and_output_weights": False}),
    "mistral-pp2": (mistral.MistralConfig7B, mistral.MistralModel, mistral.HFMistralExporter, {"num_query_groups": 1}),
    "mixtral-dp2": (mixtral.MixtralConfig8x7B, mixtral.MixtralModel, mixtral.HFMixtralExporter, EXPERTS | POSITIONS | {"layernorm_epsilon": 1e-5}),
    "qwen2-tp2": (qwen2.Qwen2Config7B, qwen2.Qwen2Model, qwen2.HFQwen2Exporter,
                  {"num_query_groups": 4, "kv_channels": None}),
    "qwen3-tp2-bf16": (qwen3.Qwen3Config8B, qwen3.Qwen3Model, qwen3.HFQwen3Exporter, POSITIONS | BF16 | {"vocab_size": 37}),
    "qwen3_moe-tp2": (qwen3.Qwen3Config30B_A3B, qwen3.Qwen3Model, qwen3.HFQwen3Exporter,
                      POSITIONS | EXPERTS | {"moe_ffn_hidden_size": 10, "moe_permute_fusion": False}),
    "gemma-tp2": (gemma.GemmaConfig2B, gemma.GemmaModel, gemma.HFGemmaExporter, {}),
    "gemma2-pp2": (gemma2.Gemma2Config2B, gemma2.Gemma2Model, gemma2.HFGemmaExporter, {}),
}


def exported(exporter, config):
    tokenizer = types.SimpleNamespace(vocab_size=config.vocab_size or 40, bos_id=1, eos_id=2)
    io.load_context = lambda *args, **kwargs: config
    return exporter.config.fget(types.SimpleNamespace(tokenizer=tokenizer)).to_dict()


def main():
    for case, (cls, model, exporter, changes) in CASES.items():
        config = cls(**SIZES | changes)
        saved = types.SimpleNamespace(model=fiddle.Config(model, config=config.__io__))
        text = mixin.IOMixin._io_dump_yaml(None, saved, ["model"])["model"]
        (HERE / f"{case}.yaml").write_text(text)
        (HERE / f"{case}.json").write_text(json.dumps(exported(exporter, config), indent=1, sort_keys=True) + "\n")


main()
os._exit(0)  # torch writes a table with a stub
