"""A training step of GPT-2: its kernels, cold and warm."""

import re
from pathlib import Path

from programs import RunProgram

GPT2 = """
    import sys, torch
    DEVICE = sys.argv[1]
    from transformers import GPT2Config, GPT2LMHeadModel
    torch.manual_seed(0)
    config = GPT2Config(
        n_layer=1, n_head=2, n_embd=32, vocab_size=100, n_positions=32,
        bos_token_id=0, eos_token_id=0,
    )
    model = GPT2LMHeadModel(config).train().to(DEVICE)
    optimizer = torch.optim.AdamW(model.parameters())
    x = torch.randint(0, 100, (2, 16), device=DEVICE)
    step = torch.compile(lambda x: model(x, labels=x).loss, backend="instrumented")
    for _ in range(2):
        step(x).backward()
        optimizer.step()
        optimizer.zero_grad()
"""


def check_one_record_for_each_kernel(
    run_program: RunProgram, cold_cache: Path, device: str, language: str
) -> None:
    """In the generated modules, found by their definitions; cold and warm alike."""
    env = {"TORCHINDUCTOR_CACHE_DIR": str(cold_cache)}
    cold, warm = (run_program(GPT2, env=env, arguments=(device,), timeout=600) for _ in range(2))
    defined: list[tuple[str, str]] = []
    for path in cold_cache.glob("??/*.py"):
        names = re.findall(rf"^(\w+) = async_compile\.{language}", path.read_text(), re.M)
        defined += [(str(path), name) for name in names]
    assert len(defined) > 10
    kept = []
    for done in (cold, warm):
        kernels = [k for k in done.report["kernels"] if k["language"] != "extern"]
        assert sorted((k["path"], k["kernel_name"]) for k in kernels) == sorted(defined)
        assert {k["language"] for k in kernels} == {language}
        for kernel in kernels:
            assert kernel["kernel_category"] in ("pointwise", "reduction", "persistent_reduction")
            assert kernel["total_bytes"] > 0 and kernel["calls"] >= 1
            assert kernel["aten_ops"] and kernel["fx_nodes"]
            assert all(re.search(r"\.py:\d+$", line) for line in kernel["source_lines"])
        lines = {line for kernel in kernels for line in kernel["source_lines"]}
        assert any("modeling_gpt2.py:" in line for line in lines)
        kept.append(done.report["kernels"])
        assert "lost" not in done.report["note_codes"], done.report["notes"]
    assert {g["cache"] for g in warm.report["graphs"]} == {"hit"}
    assert kept[0] == kept[1]
