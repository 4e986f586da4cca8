"""The name of a module in its model, by the variables of those who called."""

import gc
import sys
import weakref

import pytest
import torch
from torch import nn

from instrumented_backend.observe.compile import model_path as module
from instrumented_backend.observe.compile.model_path import contains, model_path


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(nn.Linear(2, 2) for _ in range(3))
        self.paths: list[str] = []

    def name_of(self, part: nn.Module) -> str:
        return model_path(part, sys._getframe())


class Other(nn.Module):
    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner


class Trainer:
    """No module itself, it has one."""

    def __init__(self, model: nn.Module) -> None:
        self.model = model

    def name_of(self, part: nn.Module) -> str:
        return model_path(part, sys._getframe())


@pytest.fixture(autouse=True)
def only_this_module(monkeypatch: pytest.MonkeyPatch) -> None:
    """pytest's frames are no program's."""
    monkeypatch.setattr(module, "is_internal", lambda file: file != __file__)


def test_by_a_variable_of_the_caller() -> None:
    model = Model()
    assert model_path(model.blocks[1], sys._getframe()) == "Model.blocks.1"
    assert model_path(model, sys._getframe()) == "Model"


def test_by_self_and_its_attributes() -> None:
    assert Model().name_of(nn.Linear(2, 2)) == "Linear"
    model = Model()
    part = model.blocks[2]
    assert model.name_of(part) == "Model.blocks.2"
    trainer = Trainer(model)
    del model
    assert trainer.name_of(part) == "Model.blocks.2"


def test_the_largest_model_of_the_nearest_caller() -> None:
    model = Model()
    wrapped = Other(model)
    assert model_path(model.blocks[0], sys._getframe()) == "Other.inner.blocks.0"
    assert wrapped.inner is model


def test_what_torch_compile_returned_is_no_part_of_the_name() -> None:
    model = Model()
    part = model.blocks[0]
    compiled = torch.compile(model)
    del model
    assert model_path(part, sys._getframe()) == "Model.blocks.0"
    assert contains(compiled, part)


def test_modules_in_a_circle_come_to_an_end() -> None:
    model = Model()
    vars(model)["_modules"]["self"] = model
    assert model_path(nn.Linear(2, 2), sys._getframe()) == "Linear"


def test_attributes_of_the_program_are_not_asked() -> None:
    """One whose `__getattr__` counts, or whose class lies about itself."""

    class Watched(Model):
        asked = 0

        def __getattr__(self, name: str) -> object:
            type(self).asked += 1
            return super().__getattr__(name)

    class Liar:
        @property
        def __class__(self) -> type:  # type: ignore[override]
            raise AssertionError("asked")

    model, liar = Watched(), Liar()
    part = vars(model)["_modules"]["blocks"]
    before = Watched.asked
    assert model_path(part, sys._getframe()) == "Watched.blocks"
    assert Watched.asked == before and liar is not None


def test_nothing_is_kept_alive() -> None:
    """Until Python 3.13, a frame keeps the copy of its variables that was asked for."""

    def program() -> weakref.ref[nn.Module]:
        model = Model()
        found = weakref.ref(model)
        model_path(model.blocks[0], sys._getframe())
        del model
        gc.collect()
        assert found() is None
        return found

    program()


def test_a_copy_that_the_program_asked_for_stays_as_it_is() -> None:
    model = Model()
    mine = sys._getframe().f_locals
    model_path(model.blocks[0], sys._getframe())
    assert mine["model"] is model
    again = locals()
    model_path(model.blocks[0], sys._getframe())
    assert again["model"] is model and mine["model"] is model
