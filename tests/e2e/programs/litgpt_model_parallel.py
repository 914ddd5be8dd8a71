"""LitGPT's `GPT` of what its `pretrain` state becomes by `fabric.save` with `ModelParallelStrategy` (FSDP2) in two ranks, one forward pass; the other directory is Fabric's own consolidation."""

PACKAGE, EQUAL = "litgpt", "logits"
REQUIRES = ["docstring_parser==0.18.0", "jsonargparse==4.41.0", "litgpt==0.5.13", "typeshed_client==2.14.0"]


def sharded(name):
    import pathlib
    import runpy

    return runpy.run_path(str(pathlib.Path(__file__).with_name("litgpt_sharded.py")))[name]


def fsdp2(fabric_run):
    from torch.distributed.fsdp import fully_shard

    def by_blocks(model, mesh):
        for block in model.transformer.h:
            fully_shard(block, mesh=mesh["data_parallel"])
        return fully_shard(model, mesh=mesh["data_parallel"])

    fabric_run.lightning_run.on_cpu()
    return fabric_run.Parallel(parallelize_fn=by_blocks, data_parallel_size=2, tensor_parallel_size=1,
                               save_distributed_checkpoint=True)


def rank(n, out, port):
    sharded("rank")(n, out, port, fsdp2)


def read(directory, scratch):
    return sharded("read")(directory, scratch)
