"""The modules of NeMo 2 that train and save, without the rest of NeMo:

    import nemo_code
    from nemo.lightning.io.pl import MegatronCheckpointIO

NeMo's packages are entered without their __init__, which import all that NeMo has. What is not installed, and not used
here, is a stub.
"""

import importlib
import importlib.abc
import importlib.machinery
import logging
import sys
import types
from pathlib import Path

import accelerate  # noqa: F401  before the stubs: what is installed stays what it is
import lightning.pytorch  # noqa: F401
from installed import installed

FOLDER = installed("nemo-2.5.3", "nemo_toolkit==2.5.3")
ABSENT = {"fiddle", "hydra", "omegaconf"}
ZARR = "megatron.core.dist_checkpointing.strategies.tensorstore"  # an old form of checkpoints


class Stubs(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] not in ABSENT and name != ZARR:
            return None
        return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec):
        """Its attributes are the modules that are in its folder, or classes that do nothing."""
        def attribute(name):
            if name.startswith("__"):
                raise AttributeError(name)
            if any(Path(folder, f"{name}.py").exists() for folder in module.__path__):
                return importlib.import_module(f"{spec.name}.{name}")
            return type(name, (), {"__module__": spec.name, "__init__": lambda self, *args, **kwargs: None,
                                   "__class_getitem__": classmethod(lambda cls, item: cls)})
        module = types.ModuleType(spec.name)
        module.__getattr__, module.__path__ = attribute, []
        return module

    def exec_module(self, module):
        pass


def package(name, real):
    module = Stubs().create_module(importlib.machinery.ModuleSpec(name, None))
    module.__path__ = [str(FOLDER / name.replace(".", "/"))] if real else []
    sys.modules[name] = module
    above, _, last = name.rpartition(".")
    if above:
        setattr(sys.modules[above], last, module)


sys.path.append(str(FOLDER))
sys.meta_path.insert(0, Stubs())
for one in ("nemo", "nemo.core", "nemo.core.classes", "nemo.core.config", "nemo.core.optim", "nemo.collections",
            "nemo.collections.llm", "nemo.lightning", "nemo.lightning.io", "nemo.lightning.pytorch",
            "nemo.lightning.pytorch.plugins", "nemo.lightning.pytorch.strategies", "nemo.utils", "nemo.utils.callbacks"):
    package(one, True)
for one in ("nemo.collections.common", "nemo.collections.llm.modelopt",
            "nemo.collections.llm.modelopt.model_utils", "nemo.lightning.io.mixin", "nemo.lightning.pytorch.callbacks",
            "nemo.lightning.resume", "nemo.utils.model_utils"):
    package(one, False)
sys.modules["nemo.utils"].logging = logging.getLogger("nemo")
sys.modules["nemo.utils.model_utils"].unwrap_model = lambda model, *classes: model  # nothing wraps it here
sys.modules["nemo.core.optim"].McoreDistributedOptimizer = importlib.import_module(
    "nemo.core.optim.mcore_optim").McoreDistributedOptimizer
sys.modules["nemo.core.optim"].MainParamsOptimizerWrapper = type("MainParamsOptimizerWrapper", (), {})
sys.modules["nemo.utils"].AppState = importlib.import_module("nemo.utils.app_state").AppState
