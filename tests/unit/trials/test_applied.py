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
    applied.apply(
        *(torch, name, lambda: count.append(None), lambda optimizer: None, lambda note: None)
    )
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


class Number:
    """A tensor with one number."""

    def __init__(self, value: float) -> None:
        self.value = value

    def fill_(self, value: float) -> "Number":
        self.value = value
        return self


def test_a_learning_rate_that_changes_is_a_tensor_in_the_step() -> None:
    """The same one each time, or each would be recompiled for. The program sees its numbers."""
    notes: list[str] = []
    rates = applied._Rates(SimpleNamespace(tensor=Number), notes.append)
    groups: list[dict[str, Any]] = [{"lr": 0.5}, {"lr": 0.25}]
    seen = []
    for lr in (0.5, 0.5, 0.4, 0.3):
        groups[0]["lr"] = lr
        with rates.as_tensors(groups):
            seen.append([group["lr"] for group in groups])
        assert [group["lr"] for group in groups] == [lr, 0.25]
    assert seen[:2] == [[0.5, 0.25]] * 2
    assert seen[2] == seen[3] and seen[3][0].value == 0.3 and seen[3][1].value == 0.25
    assert len(notes) == 1


def test_the_learning_rate_is_the_programs_again_after_a_failure() -> None:
    rates = applied._Rates(SimpleNamespace(tensor=Number), lambda note: None)
    groups: list[dict[str, Any]] = [{"lr": 0.5}]
    with rates.as_tensors(groups):
        pass
    groups[0]["lr"] = 0.4
    with pytest.raises(ZeroDivisionError), rates.as_tensors(groups):
        raise ZeroDivisionError
    assert groups == [{"lr": 0.4}]


def test_an_optimizer_of_the_programs_own_is_not_fused() -> None:
    torch, count = with_change(changes.FUSED_OPTIMIZER)
    type("Mine", (torch.optim.Adam,), {})()
    assert (torch.made, count) == ([{}], [])
