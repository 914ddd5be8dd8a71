"""Stands in for packages that another one imports and does not need for what a test uses of it."""

import importlib.abc
import importlib.machinery
import sys
from unittest import mock


class Absent(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Asked last: what is installed is taken as it is."""

    def __init__(self, *names):
        self.names = names

    def find_spec(self, name, path, target=None):
        if any(name == n or name.startswith(n + ".") for n in self.names):
            return importlib.machinery.ModuleSpec(name, self)
        return None

    def create_module(self, spec):
        module = mock.MagicMock(name=spec.name)
        module.__path__, module.__spec__ = [], spec
        return module

    def exec_module(self, module):
        pass


def stand_in(*names):
    """For these modules and what is below them."""
    sys.meta_path.append(Absent(*names))
