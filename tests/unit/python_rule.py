#!/usr/bin/env python3
"""The package imports on the oldest Python that it names: python_rule.py SOURCE_ROOT. Its syntax is that of Python 3.9, and
annotations are never evaluated (`X | Y` of types is an error before 3.10)."""
import ast
import glob
import os
import sys


def main():
    root = sys.argv[1]
    paths = sorted(glob.glob(os.path.join(root, "python", "**", "*.py"), recursive=True))
    bad = 0
    for path in paths:
        with open(path, encoding="utf-8") as f:
            text = f.read()
        try:
            tree = ast.parse(text, path, feature_version=(3, 9))
        except SyntaxError as e:
            print(f"{path}:{e.lineno}: not of Python 3.9: {e.msg}")
            bad += 1
            continue
        lazy = any(isinstance(n, ast.ImportFrom) and n.module == "__future__" and n.names[0].name == "annotations"
                   for n in tree.body)
        annotated = any(getattr(n, "annotation", None) or getattr(n, "returns", None) for n in ast.walk(tree))
        if annotated and not lazy:
            print(f"{path}: annotations without `from __future__ import annotations`")
            bad += 1
    print(f"{len(paths)} files, {bad} problems")
    return 1 if bad or not paths else 0


if __name__ == "__main__":
    sys.exit(main())
