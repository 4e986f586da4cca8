"""A program that reads its own report while it runs."""

# `wait(condition)` until the file is as it says; `report()` is what it holds.
PROGRAM = """
    import ctypes, glob, json, os, resource, shutil, signal, sys, threading, time, torch
    FOLDER = os.environ["INSTRUMENTED_DIR"]
    def report():
        found = glob.glob(f"{FOLDER}/report.rank0.pid{os.getpid()}.json")
        return json.load(open(found[0])) if found else None
    def wait(condition):
        for _ in range(6000):
            if condition(report()):
                return
            time.sleep(0.02)
        raise TimeoutError(report())
    f = torch.compile(lambda x: x.sin() + 1, backend="instrumented", dynamic=False)
    x = torch.ones(2)
    def train(calls):
        for _ in range(calls):
            f(x)
    def has(calls):
        return lambda known: known and known["summary"]["graph_calls"] >= calls
    train(3)
    wait(lambda known: has(3)(known) and known["ops"]["captured"]["ops"])
"""
