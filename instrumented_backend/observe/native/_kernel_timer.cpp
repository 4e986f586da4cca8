// Counts and times calls of a Python callable: the first thousand, then a quarter of them.
//
// It stands in the place of a C++ kernel in a generated module, where Python code would cost more
// than many a kernel takes. Counts are kept under the interpreter lock. The processor's own counter
// is read in a fraction of the clock's time; `now` has both, from which its rate follows. Which
// calls are timed is drawn at random: a kernel may have its sizes in turns.

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <structmember.h>

#include <ctime>

namespace {

struct Timer {
  PyObject_HEAD
  vectorcallfunc vectorcall;
  PyObject* function;
  long long calls;
  long long timed;  // of those calls
  long long ticks;  // in the timed ones
  unsigned long long random;
};

constexpr long long all_timed = 1000;

long long clock_ns() {
  timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return 1000000000LL * time.tv_sec + time.tv_nsec;
}

inline long long counter() {
#if defined(__x86_64__)
  return static_cast<long long>(__builtin_ia32_rdtsc());
#elif defined(__aarch64__)
  long long ticks;
  asm volatile("mrs %0, cntvct_el0" : "=r"(ticks));
  return ticks;
#else
  return clock_ns();
#endif
}

PyObject* call(PyObject* self, PyObject* const* args, size_t count, PyObject* names) {
  Timer* timer = reinterpret_cast<Timer*>(self);
  if (timer->calls++ >= all_timed) {
    // Knuth's multiplier; the highest bits are the most random ones.
    timer->random = 6364136223846793005ULL * timer->random + 1442695040888963407ULL;
    if (timer->random >> 62) return PyObject_Vectorcall(timer->function, args, count, names);
  }
  const long long start = counter();
  PyObject* result = PyObject_Vectorcall(timer->function, args, count, names);
  timer->ticks += counter() - start;
  timer->timed += 1;
  return result;
}

PyObject* make(PyTypeObject* type, PyObject* args, PyObject*) {
  PyObject* function = nullptr;
  if (!PyArg_ParseTuple(args, "O", &function)) return nullptr;
  Timer* timer = reinterpret_cast<Timer*>(type->tp_alloc(type, 0));
  if (timer == nullptr) return nullptr;
  timer->vectorcall = call;
  timer->function = Py_NewRef(function);
  return reinterpret_cast<PyObject*>(timer);
}

void drop(PyObject* self) {
  Py_CLEAR(reinterpret_cast<Timer*>(self)->function);
  Py_TYPE(self)->tp_free(self);
}

PyMemberDef members[] = {
    {"function", T_OBJECT, offsetof(Timer, function), READONLY, nullptr},
    {"calls", T_LONGLONG, offsetof(Timer, calls), 0, nullptr},
    {"timed", T_LONGLONG, offsetof(Timer, timed), 0, nullptr},
    {"ticks", T_LONGLONG, offsetof(Timer, ticks), 0, nullptr},
    {nullptr, 0, 0, 0, nullptr},
};

PyTypeObject timer_type = {PyVarObject_HEAD_INIT(nullptr, 0)};

PyObject* now(PyObject*, PyObject*) { return Py_BuildValue("LL", counter(), clock_ns()); }

PyMethodDef functions[] = {
    {"now", now, METH_NOARGS, "The counter, and the clock in ns."},
    {nullptr, nullptr, 0, nullptr},
};

PyModuleDef module = {PyModuleDef_HEAD_INIT, "_kernel_timer", nullptr, -1, functions};

}  // namespace

PyMODINIT_FUNC PyInit__kernel_timer() {
  timer_type.tp_name = "instrumented_backend._kernel_timer.Timer";
  timer_type.tp_basicsize = sizeof(Timer);
  timer_type.tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL;
  timer_type.tp_vectorcall_offset = offsetof(Timer, vectorcall);
  timer_type.tp_call = PyVectorcall_Call;
  timer_type.tp_new = make;
  timer_type.tp_dealloc = drop;
  timer_type.tp_members = members;
  if (PyType_Ready(&timer_type) < 0) return nullptr;
  PyObject* created = PyModule_Create(&module);
  if (created != nullptr &&
      PyModule_AddObjectRef(created, "Timer", reinterpret_cast<PyObject*>(&timer_type)) < 0) {
    Py_CLEAR(created);
  }
  return created;
}
