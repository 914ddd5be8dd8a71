"""What docs/compatibility.md's table of writers is made of names tests that exist, and the versions that run here."""

import json
import re

import pytest

import writers


@pytest.mark.parametrize("row", writers.WRITERS, ids=lambda r: r["does"][:40])
def test_a_row_is_of_this_environment(row):
    found = json.loads(writers.RESULTS.read_text())[row["does"]]
    assert found["versions"] == writers.versions_of(row)
    assert found.keys() - {"versions"} == {kind for kind in writers.KINDS if kind in row}
    for pattern in (p for kind in writers.KINDS for p in row.get(kind, ())):
        name, _, begins = pattern.partition("::")
        tests = re.findall(r"^def (test_\w+)", (writers.HERE / name).read_text(), re.M)
        assert any(t.startswith(begins.partition("*")[0]) for t in tests), pattern


def test_a_row_with_a_failed_test_is_not_recorded():
    row = {"does": "x", "bytes": ["test_a.py::test_one", "test_a.py::*old"], "resumed": ["test_b.py::test_two"]}
    ran = {"tests/e2e/test_a.py::test_one[1]": True, "tests/e2e/test_a.py::test_x[old]": True,
           "tests/e2e/test_a.py::test_one[2]": True, "tests/e2e/test_b.py::test_two": True}
    assert writers.counts(row, ran) == {"bytes": 3, "resumed": 1}
    assert writers.counts(row, ran | {"tests/e2e/test_a.py::test_one[2]": False}) is None
    assert writers.counts(row, {k: v for k, v in ran.items() if "test_b" not in k}) is None
