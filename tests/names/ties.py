#!/usr/bin/env python3
"""Writes lib/names/tie_table.c from the installed transformers: ties.py [--check]

For each family: which names save_pretrained leaves out because another one has the same tensor (_tied_weights_keys of
all its models), without those that lib/facts/ties.c finds by their suffixes, and without patterns; and which it leaves
out because the model computes them (_keys_to_ignore_on_save)."""

import importlib
import os
import re
import sys
from pathlib import Path

os.environ.update(OMP_NUM_THREADS="1", HF_HUB_OFFLINE="1", TRANSFORMERS_VERBOSITY="error")

import transformers
from transformers import MarianConfig, MarianModel, PreTrainedModel

ROOT = Path(__file__).parents[2]
TABLE = ROOT / "lib/names/tie_table.c"
PLAIN = re.compile(r"[\w.]+\.(weight|bias)")
HEAD = """/* Written by tests/names/ties.py from transformers: which tensors save_pretrained leaves out. Sorted. */
#include "names/tie_table.h"

/* clang-format off */
const struct uns_tie_row uns_tie_table[] = {
"""
END = """};
/* clang-format on */
const size_t uns_tie_table_n = sizeof(uns_tie_table) / sizeof(uns_tie_table[0]);
"""

# Models that know their ties only when they are made.
MADE = [MarianModel(MarianConfig(vocab_size=8, d_model=8, encoder_layers=1, decoder_layers=1, encoder_attention_heads=1,
                                 decoder_attention_heads=1, pad_token_id=0))]


def suffixes(name):
    text = (ROOT / "lib/facts/ties.c").read_text()
    return [f".{s}" for s in re.findall(r'"([^"]+)"', text[text.index(f"{name}[] = {{"):].split("};")[0])]


def models():
    """All classes of models that say something of it, and MADE."""
    yield from MADE
    for source in sorted((Path(transformers.__file__).parent / "models").glob("*/modeling_*.py")):
        if re.search("_tied_weights_keys|_keys_to_ignore_on_save", source.read_text()):
            module = importlib.import_module(f"transformers.models.{source.parent.name}.{source.stem}")
            yield from (c for c in vars(module).values() if isinstance(c, type) and issubclass(c, PreTrainedModel)
                        and c.__module__ == module.__name__)


def rows():
    heads, embeddings = suffixes("tied_suffix"), suffixes("kept_suffix")
    for model in models():
        model_type = getattr(model.config_class, "model_type", "")
        ties = model._tied_weights_keys if isinstance(model._tied_weights_keys, dict) else {}
        for second, first in ties.items():
            known = any(f".{second}".endswith(s) for s in heads) and any(f".{first}".endswith(s) for s in embeddings)
            if model_type and not known and PLAIN.fullmatch(second) and PLAIN.fullmatch(first):
                yield model_type, second, first
        for name in model._keys_to_ignore_on_save or ():
            yield model_type, name, ""


def table():
    found = set(rows())
    # Of names that are tied to each other save_pretrained keeps the one that is sorted last.
    kept = sorted((m, a, b) for m, a, b in found if a < b or (m, b, a) not in found)
    written = ("\t{ %s },\n" % ", ".join(f'"{x}"' if x else "NULL" for x in row) for row in kept)
    return HEAD + "".join(written) + END


if __name__ == "__main__":
    text = table()
    if "--check" in sys.argv:
        sys.exit(TABLE.read_text() != text)
    TABLE.write_text(text)
