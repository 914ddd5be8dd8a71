"""vLLM's `get_model`, on the CPU: the parameters that its model holds (fused, the vocabulary padded)."""

PACKAGE, EQUAL = "vllm", "bytes"
BUILD = {"requires": ["setuptools==80.9.0", "setuptools-scm==10.3.4", "vcs-versioning==2.6.0", "setuptools-rust==1.13.0",
                      "semantic-version==2.10.0", "cmake==4.4.5"],
         "environment": {"VLLM_TARGET_DEVICE": "empty", "VLLM_VERSION_OVERRIDE": "0.33.0"}}
REQUIRES = ["vllm==0.33.0", "apache-tvm-ffi==0.1.15.post2", "cachetools==8.0.2", "cbor2==6.3.0",
            "certifi==2026.10.19.post1", "cloudpickle==3.1.3", "compressed-tensors==0.17.0", "fastapi==0.165.0",
            "llguidance==1.9.1", "loguru==0.7.3", "msgspec==0.22.0", "openai==3.57.0", "openai-harmony==0.0.8",
            "opentelemetry-api==1.45.2", "opentelemetry-exporter-otlp==1.45.2", "opentelemetry-sdk==1.45.2",
            "opentelemetry-semantic-conventions==0.66b2", "partial-json-parser==0.2.1.1.post7", "pillow==13.0.0",
            "prometheus-client==0.26.0", "pybase64==1.5.1", "pyzmq==27.3.0", "requests==2.34.2", "sniffio==1.3.1",
            "starlette==1.10.0", "urllib3==2.8.0", "uvloop==0.23.0", "xgrammar==0.2.8"]


def prepare():
    """Its package was built for no device: the CPU is told, and an operation of its kernels is missing."""
    import torch
    import vllm.platforms
    from vllm.platforms.cpu import CpuPlatform

    vllm.platforms._current_platform = CpuPlatform()
    torch.accelerator.empty_cache = lambda: None
    kernels = torch.library.Library("_C", "FRAGMENT")
    kernels.define("prepack_moe_weight(Tensor weight, Tensor(a!) output, str isa) -> ()")

    @torch.library.impl(kernels, "prepack_moe_weight", "CPU")
    def as_it_is(weight, output, isa):
        output.copy_(weight)

    return kernels


def loaded(model, config, load_format, scratch, size=1, expert_parallel=False, device="cpu", quantization=None, **extra):
    """-> (vLLM's config, its model). config: the directory of config.json. size: as one of so many ranks."""
    from vllm.config import DeviceConfig, LoadConfig, ModelConfig, VllmConfig, set_current_vllm_config
    from vllm.distributed import init_distributed_environment, initialize_model_parallel, parallel_state
    from vllm.model_executor.model_loader import get_model

    made = VllmConfig(model_config=ModelConfig(model=str(model), hf_config_path=str(config), tokenizer=str(config),
                                               dtype="bfloat16", enforce_eager=True, quantization=quantization),
                      load_config=LoadConfig(load_format=load_format, model_loader_extra_config=extra),
                      device_config=DeviceConfig(device=device))
    made.parallel_config.tensor_parallel_size = size
    made.parallel_config.enable_expert_parallel = expert_parallel
    with set_current_vllm_config(made):
        if parallel_state._TP is None:
            init_distributed_environment(1, 0, f"file://{scratch}/rendezvous", 0, "gloo")
            initialize_model_parallel(1, 1)
        return made, get_model(vllm_config=made)


def read(directory, scratch):
    kernels = prepare()
    _, model = loaded(directory, directory, "auto", scratch)
    del kernels
    return {name: t.detach() for name, t in model.named_parameters()}
