#!/usr/bin/env python3
"""Writes lib/names/published_table.c from the installed transformers: generate.py [--check]

For a tiny model of each family (families.py) every element of every tensor is numbered, transformers' own
revert_weight_conversion (which save_pretrained calls) is applied, and the rules are read off the numbers. Fails
unless each published tensor is one contiguous slice, the slices hold each element once, and the rules lead to
exactly these names and slices. Which tensors from_pretrained also takes transposed is what transformers' rules say, and
is proved by applying them. --check writes nothing and ends with 1 if the table is out of date."""

import bisect
import os
import sys
from pathlib import Path

os.environ.update(OMP_NUM_THREADS="1", HF_HUB_OFFLINE="1", TRANSFORMERS_VERBOSITY="error")

import torch
import transformers
from transformers.conversion_mapping import get_model_conversion_mapping
from transformers.core_model_loading import Transpose, WeightConverter, revert_weight_conversion

import families

TABLE = Path(__file__).parents[2] / "lib/names/published_table.c"


def numbered(model):
    """name -> tensor of numbers that no other tensor of the state dict holds."""
    out, first = {}, 0
    for name, tensor in model.state_dict().items():
        out[name] = torch.arange(first, first + tensor.numel()).reshape(tensor.shape)
        first += tensor.numel()
    return out


def trace(model, conversions):
    """[(published name, shape, source name, first element)] in the order of save_pretrained."""
    if hasattr(model, "_weight_conversions"):
        del model._weight_conversions
    if conversions:
        model._weight_conversions = conversions
    state = numbered(model)
    names = [n for n, t in state.items() if t.numel()]
    starts = [int(state[n].flatten()[0]) for n in names]
    found = []
    for name, tensor in revert_weight_conversion(model, dict(state)).items():
        flat = tensor.flatten()
        at = bisect.bisect_right(starts, int(flat[0])) - 1
        assert torch.equal(flat, torch.arange(len(flat)) + flat[0]), f"{name}: not contiguous"
        found.append((name, tuple(tensor.shape), names[at], int(flat[0]) - starts[at]))
    ranges = sorted((starts[names.index(s)] + o, torch.Size(shape).numel()) for _, shape, s, o in found)
    assert [a for a, _ in ranges] == [0] + [a + n for a, n in ranges][:-1], "not each element once"
    assert sum(n for _, n in ranges) == sum(t.numel() for t in state.values()), "elements are missing"
    return state, found


def numbers_before(a, b):
    """How many components are equal, up to and with the last equal number (a layer's)."""
    n = 0
    for i, (x, y) in enumerate(zip(a, b)):
        if x != y:
            break
        if x.isdigit():
            n = i + 1
    return n


def head_rule(source, name):
    """The beginnings that differ: "model.visual." -> "visual."; without a dot: whole names."""
    a, b = source.split("."), name.split(".")
    same = 0
    while same < min(len(a) - 1, len(b)) and a[-1 - same] == b[-1 - same]:
        same += 1
    if same == len(b):  # what begins with nothing would be said of every name
        same -= 1
    dot = "." if same else ""
    return ".".join(a[:len(a) - same]) + dot, ".".join(b[:len(b) - same]) + dot


def apply_head(rules, name):
    for start, new in rules:
        if name == start or (start.endswith(".") and name.startswith(start)):
            return new + name[len(start):]
    return name


def tail_rules(headed, shape, slices):
    """The ends of one tensor that is renamed or cut: [(from, to, part, of, unstack)]."""
    a = headed.split(".")
    unstack = len(slices[0][1]) == len(shape) - 1
    stack = shape[0] if unstack else 1
    assert len(slices) % stack == 0, headed
    parts, rules = len(slices) // stack, []
    for p in range(parts):
        name, _, _ = slices[p * stack]
        b = name.split(".")
        n = numbers_before(a, b)
        to = b[n:]
        if unstack:
            to[to.index("0")] = "#"
        first = slices[p * stack][2]
        size = torch.Size(shape).numel() // stack // parts
        assert first % size == 0, f"{headed}: its parts are not equal"
        rules.append((".".join(a[n:]), ".".join(to), first // size, parts, unstack))
    return rules


def follows(rule, other):
    """What a rule says of some names another one says of all that end so."""
    more = rule[0][:-len(other[0])]
    return more.endswith(".") and rule[0] == more + other[0] and rule[1:] == (more + other[1], *other[2:])


def rules_of(state, found):
    by_source = {}
    for name, shape, source, first in found:
        by_source.setdefault(source, []).append((name, shape, first))
    whole = {s: v[0][0] for s, v in by_source.items() if len(v) == 1 and v[0][1] == tuple(state[s].shape)}
    heads = {head_rule(s, n) for s, n in whole.items()
             if s != n and not numbers_before(s.split("."), n.split("."))}
    heads = sorted(heads, key=lambda r: (-len(r[0]), r))
    tails = []
    for source, slices in by_source.items():
        headed = apply_head(heads, source)
        if [headed] != [n for n, _, _ in slices]:
            for rule in tail_rules(headed, tuple(state[source].shape), slices):
                if rule not in tails:
                    tails.append(rule)
    return heads, [rule for rule in tails if not any(follows(rule, other) for other in tails)]


def apply_tails(rules, name, shape):
    """[(published name, shape, first element)] of one tensor."""
    mine = [r for r in rules if name == r[0] or name.endswith("." + r[0])]
    if not mine:
        return [(name, shape, 0)]
    out = []
    for start, to, part, of, unstack in mine:
        inner = shape[1:] if unstack else shape
        cut = (inner[0] // of, *inner[1:]) if of > 1 else tuple(inner)
        size = torch.Size(cut).numel()
        for e in range(shape[0] if unstack else 1):
            new = name[:len(name) - len(start)] + to.replace("#", str(e))
            out.append((new, cut, (e * of + part) * size))
    return out


def prove(heads, tails, state, found):
    """The rules lead to what transformers did, in its order."""
    order = list(dict.fromkeys(source for _, _, source, _ in found))
    got = [(name, tuple(shape), source, first) for source in order
           for name, shape, first in apply_tails(tails, apply_head(heads, source), tuple(state[source].shape))]
    assert got == found, [x for x in zip(got, found) if x[0] != x[1]][:3]


def transposed_too(model, conversions):
    """The ends of names of tensors whose rows and columns files may have in either order: by its shape,
    from_pretrained transposes such a tensor or does not. save_pretrained never does (trace)."""
    ends = []
    for rule in conversions:
        operations = getattr(rule, "operations", None) or []
        if not any(isinstance(o, Transpose) and o.check_dims for o in operations):
            continue
        end, = rule.target_patterns
        assert isinstance(rule, WeightConverter) and rule.source_patterns == [end] and len(operations) == 1, end
        held = {n: t for n, t in numbered(model).items() if n.endswith("." + end)}
        for name, tensor in held.items():
            assert tensor.dim() == 3 and tensor.shape[1] != tensor.shape[2], name
            for in_file in (tensor, tensor.transpose(1, 2)):
                read = operations[0].convert({end: in_file}, [end], [end], model=model, full_layer_name=name)
                assert torch.equal(read[end], tensor), name
        assert held, end
        ends.append(end)
    return sorted(ends)


def read_off(family):
    """-> None where nothing is converted, else the family's rules: heads, heads of a model that was not
    loaded, tails, ends of what may be transposed."""
    with torch.device("meta"):
        model = families.build(family)
    conversions = get_model_conversion_mapping(model, add_legacy=False)
    if not conversions:
        return None
    loaded, new = trace(model, conversions), trace(model, None)
    heads, tails = rules_of(*loaded)
    new_heads, new_tails = rules_of(*new)
    assert tails == new_tails, "the ends depend on how the model was made"
    prove(heads, tails, *loaded)
    prove(new_heads, tails, *new)
    return heads, new_heads, tails, transposed_too(model, conversions)


def c_rules(name, rules):
    rows = []
    for rule in rules:
        start, to, part, of, unstack = (*rule, 0, 1, False)[:5]
        rows.append(f'\t{{ "{start}", "{to}", {part}, {of}, {str(unstack).lower()} }},\n')
    return f"static const struct uns_name_rule {name}[] = {{\n{''.join(rows)}\t{{ 0 }},\n}};\n"


def table(read):
    names, out = {}, []

    def name_of(kind, rules):
        if not rules:
            return "none"
        key = tuple(rules)
        if key not in names:
            names[key] = f"{kind}_{len(names)}"
            out.append(c_rules(names[key], rules))
        return names[key]

    rows = []
    for family, (heads, new_heads, tails, transposed) in sorted(read.items()):
        row = [name_of("heads", heads), name_of("heads", new_heads), name_of("tails", tails)]
        ends = ", ".join(f'"{end}"' for end in transposed) or "NULL"
        row.append(f"{{ {ends} }}")
        rows.append(f'\t{{ "{family}", {", ".join(row)} }},\n')
    return f"""/* Written by tests/names/generate.py from transformers {transformers.__version__}: do not edit. */
/* clang-format off */
#include "names/published_table.h"

#include <stddef.h>

const char uns_published_source[] = "transformers {transformers.__version__}";

static const struct uns_name_rule none[] = {{ {{ 0 }} }};
{"".join(chr(10) + x for x in out)}
/* Sorted by model_type. */
const struct uns_name_family uns_published_table[] = {{
{"".join(rows)}}};
const size_t uns_n_published_table = sizeof(uns_published_table) / sizeof(uns_published_table[0]);
"""


def main():
    read = {}
    for family in families.FAMILIES:
        try:
            rules = read_off(family)
        except Exception as error:
            sys.exit(f"{family[0]}: {type(error).__name__}: {error}")
        if rules:
            read[family[0]] = rules
    new = table(read)
    if "--check" not in sys.argv[1:]:
        TABLE.write_text(new)
    elif TABLE.read_text() != new:
        sys.exit(f"{TABLE}: transformers {transformers.__version__} publishes other names; run {sys.argv[0]}")


if __name__ == "__main__":
    main()
