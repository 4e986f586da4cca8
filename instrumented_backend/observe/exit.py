"""Calls one function when the process ends, however it ends, and leaves the ending as it was."""

import atexit
import ctypes
import fcntl
import multiprocessing
import multiprocessing.util
import os
import resource
import signal
import sys
import threading
from collections.abc import Callable
from types import FrameType

from instrumented_backend.observe.descriptors import close_own, identity_of

# After the program's own finalizers, which have higher priorities (the default is 0).
_FINALIZE_LAST = -1000
_PENDING_CALL = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)
# How long one ending waits for the report that another has begun.
_REPORT_S = 20.0
_FROM_PYTHON = 0x80  # added to a signal's number by our handler


class _Pipe:
    """A pipe that the program knows nothing of.

    It may close both ends, as daemons close what they don't know, and open its own files under
    their numbers. Ours are high: the system gives the lowest that is free.
    """

    def __init__(self) -> None:
        soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        lowest = 3 * min(soft if soft != resource.RLIM_INFINITY else 1024, 1024) // 4
        ends = os.pipe()
        try:
            self.reader, self.writer = (
                fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, lowest) for end in ends
            )
        finally:
            for end in ends:
                os.close(end)
        os.set_blocking(self.writer, False)
        self._identity = identity_of(self.writer)

    def read(self) -> bytes:
        """Nothing once it is closed."""
        is_there = identity_of(self.reader) == self._identity
        return os.read(self.reader, 64) if is_there else b""

    def write(self, data: bytes) -> bool:
        """Whether it was still there."""
        if identity_of(self.writer) != self._identity:
            return False
        os.write(self.writer, data)
        return True

    def close(self) -> None:
        for end in (self.reader, self.writer):
            close_own(end, self._identity)


class ExitHooks:
    """Runs ``on_exit`` once: at interpreter exit, or when SIGTERM would kill the process.

    Exceptions, ``sys.exit`` and SIGINT end in ``atexit``. SIGTERM does not: where the program
    has no handler of its own, ours reports and then lets the signal kill the process as it
    would have. A thread does that work, woken through a pipe by the signal itself, because the
    main thread can be inside a long native call, in which Python handlers don't run. Where both
    endings meet, as in a rank whose peer died, the later waits for the earlier one's report.

    ``on_fork`` runs in a forked child, which starts without these hooks. ``asked`` is a signal and
    what it calls, on that thread as well, where nobody else handles the signal.
    """

    def __init__(
        self,
        on_exit: Callable[[], None],
        on_fork: Callable[[], None],
        asked: tuple[int, Callable[[], None]] | None = None,
    ) -> None:
        self._on_exit = on_exit
        self._on_fork = on_fork
        self._asked = asked
        self._answering = threading.Lock()
        self._has_answered = False  # the signal itself, of which our handler may tell once more
        self.interrupted = False  # by SIGTERM or Ctrl-C
        self._lock = threading.Lock()
        self._installed = False
        self._has_first = False
        self._begun = False
        self._reported = threading.Event()
        self._pipe: _Pipe | None = None
        self._forking = threading.local()
        os.register_at_fork(
            before=self._before_fork,
            after_in_parent=self._after_fork_in_parent,
            after_in_child=self._after_fork_in_child,
        )

    def install(self) -> str | None:
        """Arrange for the exit, once a process; returns what could not be arranged, or None."""
        if self._installed:
            return None
        self._installed = True
        atexit.register(self.run)
        if multiprocessing.parent_process() is not None:
            self.finalize()
        else:
            # A child of a fork server imports the program before multiprocessing calls it a child,
            # which then forgets all finalizers and does this.
            multiprocessing.util.register_after_fork(self, ExitHooks.finalize)
        on_sigterm = signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
        on_asked = self._asked is not None and self._is_free(self._asked[0])
        if not on_sigterm and not on_asked:
            return None
        if threading.current_thread() is not threading.main_thread():
            if not on_sigterm:
                return None
            return "no report on SIGTERM: the first torch.compile was not in the main thread"
        self._listen()
        if on_sigterm:
            signal.signal(signal.SIGTERM, self._handle_sigterm)
        if on_asked and self._asked is not None:
            signal.signal(self._asked[0], self._handle_asked)
            # Or what the program's native code waits for would fail with EINTR.
            signal.siginterrupt(self._asked[0], False)
        return None

    def call_first(self, function: Callable[[], None]) -> None:
        """At exit, before all that was registered by now: once a process."""
        if not self._has_first:
            self._has_first = True
            atexit.register(function)

    def finalize(self) -> None:
        """multiprocessing ends its forked children with os._exit, past atexit."""
        if self._installed:  # not in a child that has not come to it
            multiprocessing.util.Finalize(None, self.run, exitpriority=_FINALIZE_LAST)

    def _is_free(self, number: int) -> bool:
        """Does nobody handle it? Python may not know of handlers that are not its own."""
        handler = signal.getsignal(number)
        if handler == self._handle_asked:  # a forked child's
            return True
        return handler is signal.SIG_DFL and not _is_handled(number)

    def run(self) -> None:
        # Where Ctrl-C ended the program, Python has shown its traceback by now.
        self.interrupted |= getattr(sys, "last_type", None) is KeyboardInterrupt
        if self._begin():
            try:
                self._on_exit()
            finally:
                self._reported.set()
        else:
            self._reported.wait(_REPORT_S)

    def _begin(self) -> bool:
        """Whether it is the caller who reports."""
        with self._lock:
            first = not self._begun
            self._begun = True
        return first

    def _listen(self) -> None:
        self._pipe = pipe = _Pipe()
        previous = signal.set_wakeup_fd(pipe.writer, warn_on_full_buffer=False)
        if previous != -1:
            signal.set_wakeup_fd(previous)  # an event loop's; then only the handler below wakes us
        threading.Thread(
            target=self._watch, args=(pipe,), name="instrumented-signals", daemon=True
        ).start()

    def _handle_sigterm(self, signum: int, frame: FrameType | None) -> None:
        assert self._pipe is not None
        if not self._pipe.write(bytes([signum])):
            threading.Thread(target=self._die_of_sigterm, daemon=True).start()

    def _handle_asked(self, signum: int, frame: FrameType | None) -> None:
        """For where the pipe is not the wake-up descriptor; nothing in a child of a fork."""
        if self._pipe is not None and not self._pipe.write(bytes([signum | _FROM_PYTHON])):
            self._answer()

    def _answer(self) -> None:
        """On a thread of its own: the program may be killed meanwhile."""
        if self._asked is not None and self._answering.acquire(blocking=False):
            threading.Thread(target=self._answer_and_tell, daemon=True).start()

    def _answer_and_tell(self) -> None:
        assert self._asked is not None
        try:
            self._asked[1]()
        finally:
            self._answering.release()

    def _is_asked(self, number: int, signals: bytes) -> bool:
        """Each signal comes once or twice: from the signal itself, and from our handler."""
        if signal.getsignal(number) != self._handle_asked:
            return False
        from_python = (number | _FROM_PYTHON) in signals
        known, self._has_answered = self._has_answered, number in signals and not from_python
        return number in signals or (from_python and not known)

    def _watch(self, pipe: _Pipe) -> None:
        while signals := pipe.read():
            # Other signals come through the pipe too, and the program may have its own handler
            # for SIGTERM by now.
            if (
                signal.SIGTERM in signals
                and signal.getsignal(signal.SIGTERM) == self._handle_sigterm
            ):
                self._die_of_sigterm()
            if self._asked is not None and self._is_asked(self._asked[0], signals):
                self._answer()
        # The program has closed it. Python would complain of that at each signal, and is told in
        # the main thread only.
        self._forget = _PENDING_CALL(lambda _: self._forget_wakeup(pipe))
        ctypes.pythonapi.Py_AddPendingCall(self._forget, None)

    @staticmethod
    def _forget_wakeup(pipe: _Pipe) -> int:
        wakeup = signal.set_wakeup_fd(-1)
        if wakeup not in (pipe.writer, -1):
            signal.set_wakeup_fd(wakeup)  # not ours
        return 0

    def _die_of_sigterm(self) -> None:
        self.interrupted = True
        try:
            if self._begin():
                self._on_exit()  # whoever waits for it dies of the signal, too
            else:
                self._reported.wait(_REPORT_S)
        finally:
            # signal.signal works in the main thread only, which may never come back to Python.
            libc = ctypes.CDLL(None)
            libc.signal.argtypes = (ctypes.c_int, ctypes.c_void_p)
            libc.signal(int(signal.SIGTERM), None)  # SIG_DFL is the null pointer
            os.kill(os.getpid(), signal.SIGTERM)

    # A child between fork and the hook below would write its SIGTERM into our pipe.

    def _before_fork(self) -> None:
        if self._pipe is not None:
            self._forking.mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})

    def _after_fork_in_parent(self) -> None:
        self._restore_mask()

    def _after_fork_in_child(self) -> None:
        self._lock = threading.Lock()
        self._installed = self._begun = self.interrupted = False
        self._reported = threading.Event()
        self._answering = threading.Lock()
        atexit.unregister(self.run)
        pipe, self._pipe = self._pipe, None
        try:
            if pipe is not None:
                self._forget_wakeup(pipe)  # the child inherits another's as without us
                if signal.getsignal(signal.SIGTERM) == self._handle_sigterm:
                    signal.signal(signal.SIGTERM, signal.SIG_DFL)
                pipe.close()
        finally:
            self._restore_mask()
            self._on_fork()

    def _restore_mask(self) -> None:
        mask = self._forking.__dict__.pop("mask", None)
        if mask is not None:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def _is_handled(number: int) -> bool:
    """Does code in C, such as ``faulthandler.register``, handle it?"""
    libc = ctypes.CDLL(None, use_errno=True)
    action = (ctypes.c_size_t * 64)()  # a struct sigaction, which begins with the handler
    if libc.sigaction(int(number), None, ctypes.byref(action)) != 0:
        return True
    return action[0] != 0  # SIG_DFL is the null pointer
