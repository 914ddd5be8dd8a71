"""In place of torchvision, whose packages do not load beside this torch for the CPU: names that are imported and not
used where a model is loaded."""

import importlib.abc
import importlib.machinery
import sys
import types

__version__ = "0.29.0"
__path__ = []


class Named(type):
    def __getattr__(cls, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return name


class Anything(types.ModuleType):
    __path__ = []

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return Named(name, (), {})


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Of every module below torchvision."""

    def find_spec(self, fullname, path=None, target=None):
        below = fullname.startswith("torchvision.")
        return importlib.machinery.ModuleSpec(fullname, self, is_package=True) if below else None

    def create_module(self, spec):
        return Anything(spec.name)

    def exec_module(self, module):
        pass


sys.meta_path.insert(0, Finder())
