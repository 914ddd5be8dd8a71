"""SGLang's `ModelRunner`, on the CPU: the parameters that its model holds (fused, the vocabulary padded)."""

PACKAGE, EQUAL = "sglang", "bytes"
REQUIRES = ["sglang==0.5.23", "annotated-doc==0.0.7", "apache-tvm-ffi==0.1.11", "click==8.5.1", "compressed-tensors==0.18.0",
            "dill==0.4.1", "distro==1.9.0", "einops==0.8.2", "fastapi==0.165.0", "gguf==0.19.0", "h11==0.16.0",
            "httpx==0.28.1", "ipython==9.18.1", "jiter==0.19.0", "loguru==0.7.3", "msgspec==0.22.0",
            "nvidia-ml-py==13.615.71", "openai==2.8.0", "opentelemetry-api==1.45.2", "orjson==3.13.0",
            "partial-json-parser==0.2.1.1.post7", "pillow==13.0.0", "pybase64==1.5.1", "python-multipart==0.0.34",
            "pyzmq==27.3.0", "sentencepiece==0.2.3", "setproctitle==1.3.8", "sniffio==1.3.1", "starlette==1.10.0",
            "tiktoken==0.14.0", "traitlets==5.16.1", "triton==3.9.0", "typing-inspection==0.4.5", "uvicorn==0.54.0",
            "uvloop==0.23.0", "watchfiles==1.3.0", "xgrammar==0.2.7"]
# Kernels, and what does not load beside a torch for the CPU: imported by SGLang, and not called here.
ABSENT = ("flashinfer", "sgl_kernel", "soundfile", "torchaudio", "torchvision", "vllm")


def prepare():
    """Names of the absent packages can be imported. transformers, which asks which packages there are, is first."""
    import importlib.abc
    import importlib.machinery
    import sys
    import types
    from unittest import mock

    import transformers  # noqa: F401

    class Module(types.ModuleType):
        __path__ = []

        def __getattr__(self, name):
            if name.startswith("__"):
                raise AttributeError(name)
            return mock.MagicMock(name=f"{self.__name__}.{name}")

    class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
        def find_spec(self, name, path, target=None):
            absent = name.partition(".")[0] in ABSENT
            return importlib.machinery.ModuleSpec(name, self, is_package=True) if absent else None

        def create_module(self, spec):
            return Module(spec.name)

        def exec_module(self, module):
            pass

    sys.meta_path.append(Finder())


def runner_of(directory):
    """As load_model of its one_batch makes it, without a scheduler and without a tokenizer."""
    from sglang.benchmark import one_batch
    from sglang.srt.distributed import bootstrap
    from sglang.srt.server_args import PortArgs, ServerArgs

    args = ServerArgs(model_path=str(directory), device="cpu", dtype="bfloat16", attention_backend="torch_native",
                      sampling_backend="pytorch", disable_cuda_graph=True, max_total_tokens=256, mem_fraction_static=0.98,
                      disable_radix_cache=True, skip_tokenizer_init=True)
    args.resolve_once()
    ports = PortArgs.init_new(args)
    one_batch.publish(args, role="scheduler", ranks=one_batch.SpawnRanks(world_rank=0, gpu_id=0))
    one_batch._init_process_global_configs()
    config = one_batch.ModelConfig.from_server_args(args)
    bootstrap.init_parallel_runtime(server_args=args, device="cpu", dist_port=ports.nccl_port)
    bootstrap.init_layer_runtime(model_config=config)
    runner = one_batch.ModelRunner(model_config=config, mem_fraction_static=0.98, gpu_id=0, nccl_port=ports.nccl_port,
                                   server_args=args)
    runner.alloc_memory_pool()
    runner.init_attention_backends()
    runner.init_cuda_graphs()  # which also makes what runs models without graphs
    return runner


def read(directory, scratch):
    prepare()
    return {name: t.detach() for name, t in runner_of(directory).model.named_parameters()}
