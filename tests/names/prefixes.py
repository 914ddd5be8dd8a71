#!/usr/bin/env python3
"""Writes lib/names/prefix_table.c from the installed transformers: prefixes.py [--check]

For each family whose models keep their names when they are saved: base_model_prefix, which from_pretrained adds to a
name or takes from it, and by which names the bare model is recognised. Models are made without memory (meta device)."""

import os
import re
import sys
from pathlib import Path

os.environ.update(OMP_NUM_THREADS="1", HF_HUB_OFFLINE="1", TRANSFORMERS_VERBOSITY="error")

import torch
from transformers import AutoModel
from transformers.models.auto.configuration_auto import CONFIG_MAPPING
from transformers.models.auto.modeling_auto import MODEL_MAPPING

ROOT = Path(__file__).parents[2]
TABLE = ROOT / "lib/names/prefix_table.c"
FEW = {"num_hidden_layers": 2, "n_layer": 2, "num_layers": 2, "n_layers": 2, "encoder_layers": 2, "decoder_layers": 2}
HEAD = """/* Written by tests/names/prefixes.py from transformers: which prefix from_pretrained adds to names and takes from them
 * (base_model_prefix), and by which names a bare model is recognised. Sorted by strcmp. */
#include "names/prefix_table.h"

/* clang-format off */
const struct uns_prefix_row uns_prefix_table[] = {
"""
END = """};
/* clang-format on */
const size_t uns_prefix_table_n = sizeof(uns_prefix_table) / sizeof(uns_prefix_table[0]);
"""


def renamed():
    """Families whose names change on saving: lib/names/config_families.c."""
    text = (ROOT / "lib/names/config_families.c").read_text()
    return set(re.findall(r'"([^"]+)"', text[text.index("renamed[] = {"):].split("};")[0]))


def small(config):
    """The config, with few layers."""
    for key, value in FEW.items():
        if isinstance(getattr(config, key, None), int):
            try:
                setattr(config, key, min(value, getattr(config, key)))
            except Exception:
                pass
    return config


def row(model_type):
    config = small(CONFIG_MAPPING[model_type]())
    if type(config) not in MODEL_MAPPING:
        return None
    with torch.device("meta"):
        model = AutoModel.from_config(config)
    names = dict(model.named_parameters())
    embedding = model.get_input_embeddings()
    first = [n for n, p in names.items() if embedding is not None and p is getattr(embedding, "weight", None)]
    stacks = [m[1] for n in names if (m := re.match(r"(.*?\.?)\d+\.", n)) and m[1]]
    if not first or not model.base_model_prefix:
        return None
    return model_type, model.base_model_prefix, first[0], stacks[0] if stacks else ""


def table():
    rows = []
    for model_type in sorted(set(CONFIG_MAPPING.keys()) - renamed()):
        try:
            found = row(model_type)
        except Exception as e:
            print(f"{model_type}: {type(e).__name__}: {str(e)[:100]}", file=sys.stderr)
            continue
        if found:
            rows.append("\t{ %s },\n" % ", ".join(f'"{x}"' for x in found))
    return HEAD + "".join(rows) + END


if __name__ == "__main__":
    text = table()
    if "--check" in sys.argv:
        sys.exit(TABLE.read_text() != text)
    TABLE.write_text(text)
