"""How changes are made: what torch is asked for, with a stand-in for torch."""

from types import SimpleNamespace
from typing import Any

import pytest

from instrumented_backend.torch_compat import compiled
from instrumented_backend.trials import applied, changes


class Torch:
    """What `torch.compile` and optimizers were given."""

    def __init__(self) -> None:
        self.compiled: list[dict[str, Any]] = []
        self.precision = "highest"
        self.stances: list[str] = []
        self.optim = SimpleNamespace(
            **{name: self._optimizer(name) for name in ("Adam", "AdamW", "SGD", "Adagrad")}
        )
        self.compiler = SimpleNamespace(set_stance=self.stances.append)
        self.made: list[dict[str, Any]] = []
        self.compile = self._compile

    def _compile(self, model: Any = None, **given: Any) -> Any:
        self.compiled.append(given)
        return model

    def _optimizer(self, name: str) -> type:
        made = self

        def __init__(self: Any, **given: Any) -> None:
            made.made.append(given)

        return type(name, (), {"__init__": __init__})

    def set_float32_matmul_precision(self, precision: str) -> None:
        self.precision = precision


def with_change(name: str) -> tuple[Torch, list[None]]:
    torch, count = Torch(), list[None]()
    applied.apply(torch, name, lambda: count.append(None), lambda optimizer: None)
    return torch, count


@pytest.mark.parametrize(
    ("name", "given", "changed"),
    [
        ("dynamic", {}, {"dynamic": True}),
        ("dynamic", {"dynamic": False}, {"dynamic": True}),
        ("dynamic", {"backend": "instrumented"}, {"backend": "instrumented", "dynamic": True}),
        ("reduce-overhead", {}, {"mode": "reduce-overhead"}),
        ("max-autotune", {"mode": "default"}, {"mode": "max-autotune"}),
    ],
)
def test_what_compile_is_given(name: str, given: dict[str, Any], changed: dict[str, Any]) -> None:
    torch, count = with_change(name)
    torch.compile("model", **given)
    assert torch.compiled == [changed]
    assert len(count) == 1


def test_options_of_the_program_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    """torch.compile takes a mode or options, and not both."""
    monkeypatch.setattr(compiled, "mode_options", lambda mode, dynamic: {"a": mode, "b": dynamic})
    torch, _ = with_change("max-autotune")
    torch.compile("model", options={"b": 7}, dynamic=True)
    assert torch.compiled == [{"options": {"a": "max-autotune", "b": 7}, "dynamic": True}]


@pytest.mark.parametrize("given", [{"backend": "eager"}, {"disable": True}])
def test_what_is_not_inductors_stays(given: dict[str, Any]) -> None:
    torch, count = with_change("dynamic")
    torch.compile("model", **given)
    assert (torch.compiled, count) == ([given], [])


def test_no_compilation() -> None:
    torch, count = with_change(changes.EAGER)
    torch.compile("model")
    assert (torch.stances, torch.compiled, len(count)) == (["force_eager"], [{}], 1)


def test_matmul_precision() -> None:
    torch, count = with_change(changes.MATMUL_HIGH)
    assert (torch.precision, len(count)) == ("high", 1)


@pytest.mark.parametrize(
    ("given", "made"),
    [
        ({}, {"fused": True}),
        ({"foreach": None}, {"foreach": None, "fused": True}),
        ({"fused": False}, {"fused": False}),
        ({"foreach": True}, {"foreach": True}),
    ],
)
def test_fused_optimizers(given: dict[str, Any], made: dict[str, Any]) -> None:
    torch, count = with_change(changes.FUSED_OPTIMIZER)
    torch.optim.SGD(**given)
    assert torch.made == [made]
    assert len(count) == (made != given)


def test_an_optimizer_of_the_programs_own_is_not_fused() -> None:
    torch, count = with_change(changes.FUSED_OPTIMIZER)
    type("Mine", (torch.optim.Adam,), {})()
    assert (torch.made, count) == ([{}], [])
