#!/usr/bin/env python3
"""Adds to renamed[] in lib/names/config_families.c, from the installed transformers: renames.py [--check]

The families of which save_pretrained gives a new model other tensor names than it holds in memory; also where a part of
the model is of another family and has the names. Models are made without memory (meta device). What is in the list stays:
some families are not made without packages that are not installed (timm, scipy)."""

import os
import sys
import textwrap

os.environ.update(OMP_NUM_THREADS="1", HF_HUB_OFFLINE="1", TRANSFORMERS_VERBOSITY="error")

import torch
from transformers.conversion_mapping import get_model_conversion_mapping
from transformers.core_model_loading import PrefixChange, WeightConverter, apply_converters, apply_renamings
from transformers.models.auto import modeling_auto
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

import prefixes

TABLE = prefixes.ROOT / "lib/names/config_families.c"
MAPPINGS = [m for n, m in sorted(vars(modeling_auto).items()) if n.startswith("MODEL") and hasattr(m, "keys")
            and n.endswith("MAPPING")]


def models(model_type):
    """Each class of the family, with few layers; those that cannot be made are left out, with a line on stderr."""
    config = prefixes.small(CONFIG_MAPPING[model_type]())
    classes = [m[type(config)] for m in MAPPINGS if type(config) in m]
    for made in dict.fromkeys(c for cs in classes for c in (cs if isinstance(cs, tuple) else (cs,))):
        try:
            with torch.device("meta"):
                yield made(config)
        except Exception as e:
            print(f"{made.__name__}: {type(e).__name__}: {str(e).strip()[:100]}", file=sys.stderr)


def is_renamed(model):
    """As revert_weight_conversion of core_model_loading.py does it for a model that was not loaded."""
    mapping = [c for c in get_model_conversion_mapping(model, add_legacy=False) if not isinstance(c, PrefixChange)]
    reverse = [c.reverse_transform() for c in mapping[::-1]]
    converters = [c for c in reverse if isinstance(c, WeightConverter)]
    renamings = [c for c in reverse if not isinstance(c, WeightConverter)]
    return any(apply_renamings(apply_converters(n, converters)[0], renamings) != n for n in model.state_dict())


def found(known):
    for model_type in sorted(set(CONFIG_MAPPING.keys()) - known):
        try:
            if any(map(is_renamed, models(model_type))):
                yield model_type
        except Exception as e:
            print(f"{model_type}: {type(e).__name__}: {str(e)[:100]}", file=sys.stderr)


def text():
    known = prefixes.renamed()
    rows = ", ".join(f'"{n}"' for n in sorted({*known, *found(known)})) + ","
    lines = textwrap.wrap(rows, 110, break_on_hyphens=False, break_long_words=False)
    before, after = TABLE.read_text().split("renamed[] = {\n")
    return before + "renamed[] = {\n" + "".join(f"\t{line}\n" for line in lines) + after[after.index("};"):]


if __name__ == "__main__":
    written = text()
    if "--check" in sys.argv:
        sys.exit(TABLE.read_text() != written)
    TABLE.write_text(written)
