"""Python's functions take the address of a checkpoint in an object store."""

import os

import pytest
import torch
import torch.distributed.checkpoint as dcp
from safetensors.torch import load_file

import objects
import trees
from conftest import ROOT
from objects import BUCKET
from test_python import unshard

GOLDEN = ROOT / "tests/golden"


@pytest.fixture(scope="module")
def store():
    with objects.moto() as store:
        store.upload(GOLDEN / "run", "runs/llama")
        yield store


@pytest.fixture
def url(store, monkeypatch):
    """Of the run; this process has what it takes to read there."""
    before = {k: v for k, v in os.environ.items() if k.startswith("AWS_")}
    for name in before:
        monkeypatch.delenv(name)
    for name, value in store.environment().items():
        if name.startswith("AWS_"):
            monkeypatch.setenv(name, value)
    return f"s3://{BUCKET}/runs/llama"


@pytest.fixture(scope="module")
def want():
    """What torch reads of the same shards."""
    return load_file(GOLDEN / "run.model.safetensors")


def test_tensors_by_an_address(url, want):
    trees.assert_same(unshard.load_file(url + "/checkpoint-2"), want)
    trees.assert_same(unshard.load_file(url + "/latest"), want)
    with unshard.safe_open(url + "/checkpoint-2/") as f:
        assert set(f.keys()) == set(want)
        trees.assert_same({name: f.get_tensor(name) for name in f.keys()}, want)


def test_torchs_own_loading_with_our_reader(url, want):
    from unshard.dcp import Reader
    state = {name: torch.zeros_like(t) for name, t in want.items()}
    dcp.load(state, no_dist=True, storage_reader=Reader(url + "/checkpoint-2"))
    trees.assert_same(state, want)


def test_a_session_and_fsspec(url):
    from unshard.filesystem import UnshardFileSystem
    source = GOLDEN / "run/config.json"
    with unshard.open(url, settle_seconds=0) as session:
        assert [c.path for c in session.checkpoints()] == ["checkpoint-2"]
        assert session.read("weights/checkpoint-2/config.json") == source.read_bytes()
    fs = UnshardFileSystem(source=url)
    assert fs.cat_file("unshard://weights/checkpoint-2/config.json") == source.read_bytes()
    assert "weights/checkpoint-2/model.safetensors" in fs.ls("weights/checkpoint-2", detail=False)


def test_checks_and_seals_by_an_address(url, tmp_path):
    assert unshard.check(url, deep=True, settle_seconds=0) == []
    assert len(unshard.seal(url + "/checkpoint-2", seals=tmp_path, settle_seconds=0)) == 1
    assert unshard.check(url + "/checkpoint-2", deep=True, seals=tmp_path, settle_seconds=0) == []


def test_what_is_not_there(url):
    with pytest.raises(unshard.NotFound) as failed:
        unshard.load_file(url + "/nothing")
    assert "s3://" in str(failed.value)
    with pytest.raises(unshard.NotFound) as failed:
        unshard.load_file(url.rpartition("/")[0])
    assert "llama/checkpoint-2" in str(failed.value)
