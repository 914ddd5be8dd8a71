#!/usr/bin/env python3
"""Writes lib/names/parameter_table.c from the installed transformers: orders.py [--check]

For a tiny model of each family (families.py, and those below) the parameters are listed as torch's named_parameters()
does, which is the order in which an optimizer numbers them. Layers are put together in one list with '*' for numbers.
Fails unless sorting the names by that list gives back each model's own order. --check writes nothing and ends with 1 if
the table is out of date."""

import os
import re
import sys
from pathlib import Path

os.environ.update(OMP_NUM_THREADS="1", HF_HUB_OFFLINE="1", TRANSFORMERS_VERBOSITY="error")

import torch
import transformers as T

import families
from families import text

TABLE = Path(__file__).parents[2] / "lib/names/parameter_table.c"

DENSE = text(head_dim=4)
BERT = {"vocab_size": 40, "hidden_size": 8, "intermediate_size": 12, "num_hidden_layers": 2, "num_attention_heads": 2}
HEADS = ("MaskedLM", "SequenceClassification", "TokenClassification", "QuestionAnswering")


def heads(stem, kinds=HEADS):
    return [f"{stem}For{kind}" for kind in kinds]


# Families without a row in families.py: (model_type, classes, config). Of several classes the lists are joined.
MORE = [
    ("bert", heads("Bert"), T.BertConfig, BERT),
    ("roberta", heads("Roberta"), T.RobertaConfig, BERT),
    ("xlm-roberta", heads("XLMRoberta"), T.XLMRobertaConfig, BERT),
    ("distilbert", heads("DistilBert"), T.DistilBertConfig,
     {"vocab_size": 40, "dim": 8, "hidden_dim": 12, "n_layers": 2, "n_heads": 2}),
    ("electra", heads("Electra"), T.ElectraConfig, BERT | {"embedding_size": 6}),
    ("deberta-v2", heads("DebertaV2"), T.DebertaV2Config, BERT),
    ("gpt2", ["GPT2LMHeadModel", "GPT2ForSequenceClassification", "GPT2ForTokenClassification"], T.GPT2Config,
     {"vocab_size": 40, "n_embd": 8, "n_layer": 2, "n_head": 2, "n_positions": 16}),
    ("opt", ["OPTForCausalLM"], T.OPTConfig,
     {"vocab_size": 40, "hidden_size": 8, "ffn_dim": 12, "num_hidden_layers": 2, "num_attention_heads": 2,
      "word_embed_proj_dim": 8}),
    ("phi", ["PhiForCausalLM"], T.PhiConfig, text()),
    ("gemma", ["GemmaForCausalLM"], T.GemmaConfig, DENSE),
    ("cohere", ["CohereForCausalLM"], T.CohereConfig, text()),
    ("cohere2", ["Cohere2ForCausalLM"], T.Cohere2Config, text()),
    ("olmo2", ["Olmo2ForCausalLM"], T.Olmo2Config, text()),
    ("olmo3", ["Olmo3ForCausalLM"], T.Olmo3Config, text()),
    ("granite", ["GraniteForCausalLM"], T.GraniteConfig, text()),
    ("smollm3", ["SmolLM3ForCausalLM"], T.SmolLM3Config, text()),
    ("starcoder2", ["Starcoder2ForCausalLM"], T.Starcoder2Config, text()),
    ("stablelm", ["StableLmForCausalLM"], T.StableLmConfig, text()),
    ("glm", ["GlmForCausalLM"], T.GlmConfig, DENSE),
    ("t5", ["T5ForConditionalGeneration"], T.T5Config,
     {"vocab_size": 40, "d_model": 8, "d_kv": 4, "d_ff": 12, "num_layers": 2, "num_heads": 2}),
]
# Text models whose rows in families.py name one class: also with a head of another task.
TASKS = {"llama": "Llama", "mistral": "Mistral", "qwen2": "Qwen2", "qwen3": "Qwen3", "gemma2": "Gemma2",
         "gemma3_text": "Gemma3Text", "phi3": "Phi3", "gemma": "Gemma", "mixtral": "Mixtral",
         "qwen2_moe": "Qwen2Moe", "qwen3_moe": "Qwen3Moe"}


def every():
    """(model_type, [class], configs): each configuration may add parameters."""
    for model_type, cls, config, arguments in families.FAMILIES:
        more = [f"{TASKS[model_type]}ForSequenceClassification"] if model_type in TASKS else []
        yield model_type, [cls, *[c for c in more if hasattr(T, c)]], config, arguments
    for model_type, classes, config, arguments in MORE:
        yield model_type, [c for c in classes if hasattr(T, c)], config, arguments


def template(name):
    return re.sub(r"(?<![^.])\d+(?![^.])", "*", name)


class Node(dict):
    """The children of a module, in order; what is below numbers is below '*'."""

    def merge(self, names):
        """Adds the names of one module, which are in order; numbers' modules become one."""
        order, below = [], {}
        for name in names:
            first, _, rest = name.partition(".")
            if first not in below:
                order.append(first)
            below.setdefault(first, []).append(rest)
        keys = list(self)
        merged = ["*" if k.isdigit() else k for k in order]
        for i, key in enumerate(merged):
            if key not in keys:  # in front of the first of its successors that is known
                after = next((k for k in merged[i + 1:] if k in keys), None)
                keys.insert(keys.index(after) if after else len(keys), key)
        for key, first in zip(merged, order):
            child = self.setdefault(key, Node())
            if below[first] != [""]:
                child.merge(below[first])
        items = {k: self[k] for k in keys}
        self.clear()
        self.update(items)

    def leaves(self, before=""):
        for key, child in self.items():
            if child:
                yield from child.leaves(f"{before}{key}.")
            else:
                yield before + key


def build(cls, config, arguments):
    with torch.device("meta"):
        return getattr(T, cls)(config(**arguments))


def decays(model):
    return set(T.Trainer.get_decay_parameter_names(None, model))


def comes_before(rows, a, b):
    """As parameter_order.c sorts: by numbers as long as the templates are equal, then by rows."""
    s, t, x, y = template(a), template(b), a.split("."), b.split(".")
    for i, (p, q) in enumerate(zip(s.split("."), t.split("."))):
        if p != q:
            break
        if p == "*" and x[i] != y[i]:
            return int(x[i]) < int(y[i])
    return rows.index(s) < rows.index(t)


def read_off(model_type, classes, config, arguments):
    tree, kinds, models, tied = Node(), {}, [], {}
    for cls in classes:
        model = build(cls, config, arguments)
        names = [n for n, _ in model.named_parameters()]
        # Both names of tied weights, as two: what is tied depends on the config.
        tree.merge([n for n, _ in model.named_parameters(remove_duplicate=False)])
        models.append(names)
        keep = decays(model)
        for name, _ in model.named_parameters(remove_duplicate=False):
            kind = "DECAYS" if name in keep else "PLAIN"
            assert kinds.setdefault(template(name), kind) == kind or name not in names, f"{name}: decays, or does not"
        buffers = {n for n in model.state_dict()} - {n for n, _ in model.named_parameters(remove_duplicate=False)}
        for name in buffers:
            kinds[template(name)] = "BUFFER"
        ties = getattr(model, "_tied_weights_keys", None) or {}
        tied |= {a: b for a, b in ties.items() if re.fullmatch(r"[\w.]+", a) and re.fullmatch(r"[\w.]+", b)}
    rows = list(tree.leaves())
    # Of two names of one parameter, the optimizer numbers the one that comes first.
    tied = {max(pair, key=rows.index): min(pair, key=rows.index) for pair in tied.items() if set(pair) <= set(rows)}
    assert len(tied) < 16, "MAX_TIES of named_optimizer.c"
    rows += sorted(t for t, kind in kinds.items() if kind == "BUFFER" and t not in rows)
    for names in models:
        for a, b in zip(names, names[1:]):
            assert comes_before(rows, a, b), f"{model_type}: {a} comes before {b}"
    return [(t, kinds[t]) for t in rows], tuple(sorted(tied.items()))


# Rows that often follow each other: a macro's name -> what follows the module's name, and of which kind it is.
TOGETHER = {
    "ATTENTION": [(f"{p}_proj.weight", "DECAYS") for p in "qkvo"],
    "GATED_MLP": [(f"{p}_proj.weight", "DECAYS") for p in ("gate", "up", "down")],
    "LINEAR": [("weight", "DECAYS"), ("bias", "PLAIN")],
    "NORM": [("weight", "PLAIN"), ("bias", "PLAIN")],
}


def macros():
    out = ""
    for macro, ends in TOGETHER.items():
        rows = ", ".join(f'{{ module ".{end}", {kind} }}' for end, kind in ends)
        out += f"#define {macro}(module) {rows}\n"
    return out


def rows_of(names):
    """The rows of the source; those of a module that are together have a macro."""
    out, at = [], 0
    while at < len(names):
        name, kind = names[at]
        for macro, ends in TOGETHER.items():
            module = name.removesuffix(f".{ends[0][0]}")
            if names[at:at + len(ends)] == [(f"{module}.{end}", of) for end, of in ends]:
                out.append(f'\t{macro}("{module}"),\n')
                at += len(ends)
                break
        else:
            out.append(f'\t{{ "{name}", {kind} }},\n')
            at += 1
    return "".join(out)


def table(read):
    lists, ties, out, rows = {}, {(): "none"}, [], []
    for model_type, (names, tied) in sorted(read.items()):
        key = tuple(names)
        if key not in lists:
            lists[key] = f"rows_{len(lists)}"
            body = rows_of(names)
            out.append(f"\nstatic const struct uns_parameter_row {lists[key]}[] = {{\n{body}\t{{ 0 }},\n}};\n")
        if tied not in ties:
            ties[tied] = f"ties_{len(ties) - 1}"
            body = "".join(f'\t{{ "{second}", "{first}" }},\n' for second, first in tied)
            out.append(f"\nstatic const struct uns_parameter_tie {ties[tied]}[] = {{\n{body}\t{{ 0 }},\n}};\n")
        rows.append(f'\t{{ "{model_type}", {lists[key]}, {ties[tied]} }},\n')
    return f"""/* Written by tests/names/orders.py from transformers {T.__version__}: do not edit. */
/* clang-format off */
#include "names/parameter_table.h"

#define DECAYS UNS_PARAMETER_DECAYS
#define PLAIN  UNS_PARAMETER_PLAIN
#define BUFFER UNS_PARAMETER_BUFFER
{macros()}
const char uns_parameter_source[] = "transformers {T.__version__}";

static const struct uns_parameter_tie none[] = {{ {{ 0 }} }};
{"".join(out)}
/* Sorted by model_type. */
const struct uns_parameter_family uns_parameter_table[] = {{
{"".join(rows)}}};
const size_t uns_n_parameter_table = sizeof(uns_parameter_table) / sizeof(uns_parameter_table[0]);
"""


def main():
    read = {}
    for family in every():
        try:
            read[family[0]] = read_off(*family)
        except Exception as error:
            sys.exit(f"{family[0]}: {type(error).__name__}: {error}")
    new = table(read)
    if "--check" not in sys.argv[1:]:
        TABLE.write_text(new)
    elif TABLE.read_text() != new:
        sys.exit(f"{TABLE}: transformers {T.__version__} has models of another order; run {sys.argv[0]}")


if __name__ == "__main__":
    main()
