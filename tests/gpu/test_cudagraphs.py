"""CUDA graphs: recorded and replayed."""

from programs import RunProgram


def test_reduce_overhead_on_a_gpu(run_program: RunProgram) -> None:
    """One graph that replays, one skipped for mutation, one recorded again for a new size."""
    done = run_program(
        """
        import torch
        def plain(x):
            return x.sin() + 1
        def mutates(x):
            x.add_(1)
            return x * 2
        def sized(x):
            return x.cos() + 1
        compiled = [
            torch.compile(f, mode="reduce-overhead", backend="instrumented")
            for f in (plain, mutates)
        ]
        compiled.append(
            torch.compile(sized, mode="reduce-overhead", dynamic=True, backend="instrumented")
        )
        for _ in range(10):
            torch.compiler.cudagraph_mark_step_begin()
            compiled[0](torch.ones(64, device="cuda"))
        for _ in range(3):
            torch.compiler.cudagraph_mark_step_begin()
            compiled[1](torch.ones(64, device="cuda"))
        for size in (64, 64, 64, 128, 128, 128):
            torch.compiler.cudagraph_mark_step_begin()
            compiled[2](torch.ones(size, device="cuda"))
        """,
        env={"INSTRUMENTED_TABLES": "compile"},
    )
    report = done.report
    assert "lost" not in report["note_codes"], report["notes"]
    found = report["compile"]["cudagraphs"]
    graphs = {graph["compile_id"]: graph for graph in found["graphs"]}
    plain, sized = graphs["0/0"], graphs["2/0"]
    # The first call warms up, the second records, which is its run; 8 of 10 replay.
    assert (plain["recorded"], plain["replayed"], plain["re_recorded"]) == (1, 8, {})
    assert sized["recorded"] == 2 and sized["re_recorded"] == {"new sizes": 1}
    assert "1/0" not in graphs
    assert any("mutated inputs" in reason for reason in found["skipped"])
    assert found["memory_bytes"] > 0
    assert report["compile"]["phases"]["cudagraphs_s"] > 0
    assert "CUDA graphs: 3 recorded" in done.stderr
    assert "recorded again, 1 time: new sizes" in " ".join(done.stderr.split())
