"""What recompilations become, of the guards that failed."""

import pytest
import torch._dynamo

from instrumented_backend.observe.compile.recompiles import RecompileLog
from instrumented_backend.observe.messages.guards import failed_guard

LINE = "  # for t in range(x.shape[0]):  # me/model.py:9 in forward"


def test_a_size_that_is_dynamic_and_still_decides() -> None:
    """Dynamo makes a size dynamic that has changed. Where it goes on recompiling for each, the
    program itself asks what it is."""
    log = RecompileLog()
    static = "0/0: tensor 'x' size mismatch at index 0. expected 3, actual "
    seen = [[f"{static}4"]]
    seen += [[f"0/{n}: x.size()[0] == {n + 3}{LINE}", f"{static}{n + 4}"] for n in (1, 2)]
    for number, reasons in enumerate(seen):
        guards = [failed_guard(reason, ({"x": None}, {})) for reason in reasons]
        found = log.add(f"0/{number + 1}", ("forward", "/me/model.py", 7), "", guards, False)
        assert found is not None
        found.took(1.0)
    (record,) = log.records()
    (guard,) = record.guards
    assert (guard.kind, guard.count, guard.decided, guard.decided_s) == ("specialized", 3, 3, 3.0)
    assert guard.cure is not None and "dynamic=True" not in guard.cure
    assert (guard.file, guard.line) == ("/me/model.py", 9)
    assert record.decided_s == {"shape": 1.0, "specialized": 2.0}


def test_a_size_that_was_made_dynamic() -> None:
    log = RecompileLog()
    guard = failed_guard("0/0: tensor 'x' size mismatch at index 0. expected 3, actual 4", None)
    assert log.add("0/1", ("f", "/me/model.py", 7), "", [guard], False) is not None
    (record,) = log.records()
    assert record.guards[0].kind == "shape"
    assert (record.guards[0].cure or "").startswith("torch.compile(dynamic=True)")


@pytest.mark.parametrize("automatic", [True, False])
def test_a_size_that_is_a_number_in_two_versions(automatic: bool) -> None:
    """As torch 2.14 has it; with dynamic=False that is what was asked for."""
    log = RecompileLog()
    with torch._dynamo.config.patch(automatic_dynamic_shapes=automatic):
        for sizes in ([3], [4, 3]):  # of the versions, the newest first
            guards = [
                failed_guard(
                    f"0/0: tensor 'x' size mismatch at index 0. expected {old}, actual "
                    f"{sizes[0] + 1}",
                    None,
                )
                for old in sizes
            ]
            assert log.add("0/1", ("f", "/me/model.py", 7), "", guards, False) is not None
    (record,) = log.records()
    (guard,) = record.guards
    assert guard.kind == ("specialized" if automatic else "shape")
    assert guard.values == ["3", "4", "5"] and guard.decided == 2
