"""A report with one of everything, for tests of the file and of the views."""

from instrumented_backend.records import (
    BreakRecord,
    CacheLookups,
    CachesSection,
    CacheStates,
    CapturedRecord,
    CodeRecord,
    CompiledRecord,
    CompileRecord,
    CompileSection,
    CountersSection,
    EagerOpRecord,
    FileRecord,
    GpuRow,
    GpuSection,
    GraphRecord,
    GuardRecord,
    KernelRecord,
    LedgerRow,
    LedgerSection,
    LineRecord,
    MissingRecord,
    OpsRecord,
    RecompileRecord,
    Report,
    RunSection,
    SkippedRecord,
    SummarySection,
)


def sample() -> Report:
    """One of everything; the tests of the views draw it too."""
    graph = GraphRecord(
        graph=0,
        compile_id="0/0",
        compiled=0,
        function="forward",
        file="/home/me/model.py",
        line=12,
        ops=7,
        calls=3,
        backward_calls=2,
        code=[CodeRecord("forward", "/cache/ab/cab.py", ["cpp_fused_add_0"])],
        cache="hit",
        aot_autograd_cache="hit",
        fx_graph_cache={"hits": 2, "misses": 0, "bypasses": 0},
        compile_s={"dynamo_s": 0.5, "aot_autograd_s": 0.25},
        inductor_metrics={"generated_kernel_count": 1},
        counters={"aot_autograd": {"autograd_cache_hit": 1}},
    )
    return Report(
        run=RunSection(torch="2.13.0+cpu", device="cpu", rank=0, pid=17, wall_s=1.5),
        summary=SummarySection(
            graphs=1,
            graph_calls=3,
            backward_calls=2,
            graph_breaks=1,
            skipped_functions=1,
            recompiles=1,
            graph_ops=7,
            captured_ops=30,
            total_ops=40,
            pct_ops=75.0,
            pct_time=90.0,
        ),
        graphs=[graph],
        kernels=[KernelRecord("cpp_fused_add_0", "cpp", 0, "forward", "/cache/ab/cab.py")],
        ops=OpsRecord(
            status="sampled",
            observed_pct=17.0,
            captured=CapturedRecord(ops=30, forward_ops=20, backward_ops=10, time_us=9000.0),
            total_ops=40,
            total_time_us=10_000.0,
            pct_ops_spread=0.25,
            pct_time_spread=1.5,
            eager=[EagerOpRecord("aten::add", 10, 1000.0, 100.0)],
            missing=[
                MissingRecord("aten::add", "/home/me/model.py", 16, "step", 10, 1000.0, 100.0)
            ],
            note=None,
        ),
        breaks=[
            BreakRecord(
                kind="skipped",
                reason="Failed to trace print",
                file="/home/me/model.py",
                line=14,
                function="block",
                count=2,
                source='print("hi")',
                hint="Avoid calling it.",
                skipped=[SkippedRecord("forward", "/home/me/model.py", 12, "graph break in loop")],
                graphs_before=[0],
                graphs_after=[1],
                eager_ops=10,
                eager_time_us=1000.0,
            ),
        ],
        recompiles=[
            RecompileRecord(
                "0/1",
                "forward",
                "/home/me/model.py",
                12,
                "size mismatch",
                compile_s=2.5,
                decided_s={"shape": 2.5},
                guards=[
                    GuardRecord(
                        kind="shape",
                        subject="size of x in dimension 0",
                        values=["4", "5"],
                        count=1,
                        decided=1,
                        decided_s=2.5,
                        file="/home/me/model.py",
                        line=13,
                        source="x = x + 1",
                        cure="mark_dynamic",
                    )
                ],
            )
        ],
        caches=CachesSection(
            graphs=CacheStates(hit=1, miss=0, bypass=0, off=0),
            aot_autograd={"hit": 1},
            fx_graph=CacheLookups(hits=2, misses=0, bypasses=0),
            bypass_reasons={},
        ),
        counters=CountersSection(
            inductor_metrics={"generated_kernel_count": 1},
            graphs={"aot_autograd": {"autograd_cache_hit": 1}},
            outside_inductor_metrics={"generated_kernel_count": 0},
            outside_graphs={"frames": {"total": 2}},
        ),
        compile=CompileSection(
            total_s=0.75,
            phases={"dynamo_s": 0.5, "aot_autograd_s": 0.25},
            compilations=[
                CompileRecord(
                    "0/0",
                    "forward",
                    "forward",
                    "/home/me/model.py",
                    12,
                    "compiled",
                    [0],
                    {"dynamo_s": 0.5, "aot_autograd_s": 0.25},
                    0.75,
                )
            ],
        ),
        notes=[],
        lines=[
            LineRecord("/home/me/model.py", 16, "step", 0, 0, 0, {}, [], 10, 0.0, 1000.0),
            LineRecord("/home/me/model.py", 13, "forward", 30, 20, 10, {"add": 1}, [0], breaks=[0]),
        ],
        files=[FileRecord("/home/me/model.py", "5e")],
        compiled=[
            CompiledRecord(
                compiled=0,
                call="torch.compile(forward)",
                file="/home/me/train.py",
                line=5,
                target="forward",
                calls=3,
                graphs=[0],
                graph_calls=3,
                eager_calls=0,
                captured_ops=30,
                pct_ops=100.0,
                pct_time=100.0,
            )
        ],
        # 1.5 s, of which 9 ms in graphs and 1 ms in eager ops, as above.
        ledger=LedgerSection(
            1.5,
            [
                LedgerRow("startup", "main", 0.3, 20.0, 0.0, "exact"),
                LedgerRow("compile", "main", 0.75, 50.0, 0.0, "exact"),
                LedgerRow("captured", "main", 0.009, 0.6, 0.0, "exact"),
                LedgerRow("eager_ops", "main", 0.001, 0.1, 0.0001, "sampled"),
                LedgerRow("data", "main", 0.0, 0.0, 0.0, "exact"),
                LedgerRow("python", "main", 0.44, 29.3, 0.0001, "sampled"),
            ],
        ),
    )


def sample_on_gpu() -> Report:
    """The same with a GPU: the time after start-up that nothing was compiled in."""
    report = sample()
    report.gpu = GpuSection(
        0.45,
        [
            GpuRow(
                device=0,
                name="NVIDIA H100",
                captured_s=0.27,
                eager_s=0.09,
                idle_s=0.09,
                captured_pct=60.0,
                eager_pct=20.0,
                idle_pct=20.0,
                spread_pct=0.5,
                behind_pct=3.0,
                verdict="launch-bound",
                observed_pct=17.0,
                status="sampled",
            )
        ],
    )
    return report
