// What the program calls in a compiled graph's place: counts each call, and has it watched by
// whoever wants to. In Python, the frame alone would cost more than all of this.
//
// While nobody else watches, the op meter's native part is told where the region begins and ends.
// In any other case it is Python's `watched` that is called, which does all that itself, the
// counting included. Without an op meter, a call is counted and passed on.

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <structmember.h>

#include <cstdint>

namespace {

// `GateState` in build.py.
struct Gate {
  int64_t state;
  void (*enter)(int64_t key);
  void (*leave)(int64_t key);
};

enum State : int64_t { kUnwatched, kWatched, kMetered };

// What each call needs comes first, close together.
struct GraphCall {
  PyObject_HEAD
  vectorcallfunc vectorcall;
  PyObject* compiled;
  PyObject* boxed;   // what `compiled` calls with one list, and does nothing else; or null
  PyObject* before;  // what that list begins with
  const Gate* gate;
  int64_t* calls;  // their number, under the interpreter lock
  bool started;    // has `graph` been seen to be
  long long key;   // the graph's, for the op meter
  PyObject* watched;
  PyObject* graph;  // its attribute `started` is true after its first call
  Py_buffer gate_buffer;
  Py_buffer calls_buffer;
  PyObject* attributes;
  PyObject* weak_references;
};

PyObject* started_name = nullptr;

// -1 where an exception is set.
int has_started(GraphCall* self) {
  PyObject* value = PyObject_GetAttr(self->graph, started_name);
  if (value == nullptr) return -1;
  const int result = PyObject_IsTrue(value);
  Py_DECREF(value);
  self->started = result == 1;
  return result;
}

// What `compiled` does, without its frame where it is known to do nothing else.
PyObject* run(const GraphCall* self, PyObject* const* args, size_t count, PyObject* names) {
  if (self->boxed == nullptr || names != nullptr) {
    return PyObject_Vectorcall(self->compiled, args, count, names);
  }
  const Py_ssize_t before = PyList_GET_SIZE(self->before), given = PyVectorcall_NARGS(count);
  PyObject* all = PyList_New(before + given);
  if (all == nullptr) return nullptr;
  for (Py_ssize_t i = 0; i < before; ++i) {
    PyList_SET_ITEM(all, i, Py_NewRef(PyList_GET_ITEM(self->before, i)));
  }
  for (Py_ssize_t i = 0; i < given; ++i) PyList_SET_ITEM(all, before + i, Py_NewRef(args[i]));
  PyObject* result = PyObject_CallOneArg(self->boxed, all);
  Py_DECREF(all);
  return result;
}

PyObject* call(PyObject* object, PyObject* const* args, size_t count, PyObject* names) {
  GraphCall* self = reinterpret_cast<GraphCall*>(object);
  const int started = self->started ? 1 : has_started(self);
  if (started < 0) return nullptr;
  const Gate* gate = self->gate;
  const int64_t state = gate->state;
  if (!started || state == kWatched) {
    return PyObject_Vectorcall(self->watched, args, count, names);
  }
  ++*self->calls;
  if (state == kUnwatched) return run(self, args, count, names);
  gate->enter(self->key);
  PyObject* result = run(self, args, count, names);
  gate->leave(self->key);
  return result;
}

bool get_buffer(PyObject* source, Py_buffer* buffer, size_t size) {
  if (PyObject_GetBuffer(source, buffer, PyBUF_WRITABLE) < 0) return false;
  if (static_cast<size_t>(buffer->len) == size) return true;
  PyErr_Format(PyExc_TypeError, "%zd bytes, not %zu: %R", buffer->len, size, source);
  return false;
}

PyObject* make(PyTypeObject* type, PyObject* args, PyObject*) {
  PyObject *compiled, *watched, *graph, *gate, *calls, *boxed, *before;
  long long key;
  if (!PyArg_ParseTuple(args, "OOOLOOOO", &compiled, &watched, &graph, &key, &gate, &calls, &boxed,
                        &before)) {
    return nullptr;
  }
  GraphCall* self = reinterpret_cast<GraphCall*>(type->tp_alloc(type, 0));
  if (self == nullptr) return nullptr;
  if (!get_buffer(gate, &self->gate_buffer, sizeof(Gate)) ||
      !get_buffer(calls, &self->calls_buffer, sizeof(int64_t))) {
    Py_DECREF(self);
    return nullptr;
  }
  self->gate = static_cast<const Gate*>(self->gate_buffer.buf);
  self->calls = static_cast<int64_t*>(self->calls_buffer.buf);
  self->vectorcall = call;
  self->compiled = Py_NewRef(compiled);
  if (PyList_CheckExact(before)) {
    self->boxed = Py_NewRef(boxed);
    self->before = Py_NewRef(before);
  }
  self->watched = Py_NewRef(watched);
  self->graph = Py_NewRef(graph);
  self->key = key;
  return reinterpret_cast<PyObject*>(self);
}

int traverse(PyObject* object, visitproc visit, void* arg) {
  GraphCall* self = reinterpret_cast<GraphCall*>(object);
  Py_VISIT(Py_TYPE(object));
  Py_VISIT(self->compiled);
  Py_VISIT(self->boxed);
  Py_VISIT(self->before);
  Py_VISIT(self->watched);
  Py_VISIT(self->graph);
  Py_VISIT(self->attributes);
  return 0;
}

int clear(PyObject* object) {
  GraphCall* self = reinterpret_cast<GraphCall*>(object);
  Py_CLEAR(self->compiled);
  Py_CLEAR(self->boxed);
  Py_CLEAR(self->before);
  Py_CLEAR(self->watched);
  Py_CLEAR(self->graph);
  Py_CLEAR(self->attributes);
  return 0;
}

void drop(PyObject* object) {
  GraphCall* self = reinterpret_cast<GraphCall*>(object);
  PyTypeObject* type = Py_TYPE(object);
  PyObject_GC_UnTrack(object);
  if (self->weak_references != nullptr) PyObject_ClearWeakRefs(object);
  clear(object);
  PyBuffer_Release(&self->gate_buffer);  // does nothing to one that was not got
  PyBuffer_Release(&self->calls_buffer);
  type->tp_free(object);
  Py_DECREF(type);
}

PyGetSetDef attributes[] = {
    {"__dict__", PyObject_GenericGetDict, PyObject_GenericSetDict, nullptr, nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr},
};

PyMemberDef offsets[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(GraphCall, vectorcall), READONLY, nullptr},
    {"__dictoffset__", T_PYSSIZET, offsetof(GraphCall, attributes), READONLY, nullptr},
    {"__weaklistoffset__", T_PYSSIZET, offsetof(GraphCall, weak_references), READONLY, nullptr},
    {nullptr, 0, 0, 0, nullptr},
};

PyType_Slot slots[] = {
    {Py_tp_call, reinterpret_cast<void*>(PyVectorcall_Call)},
    {Py_tp_new, reinterpret_cast<void*>(make)},
    {Py_tp_traverse, reinterpret_cast<void*>(traverse)},
    {Py_tp_clear, reinterpret_cast<void*>(clear)},
    {Py_tp_dealloc, reinterpret_cast<void*>(drop)},
    {Py_tp_getset, attributes},
    {Py_tp_members, offsets},
    {0, nullptr},
};

// Of the heap: Dynamo asks for the type's name at each call, which a static type makes anew.
PyType_Spec spec = {"instrumented_backend._graph_call.GraphCall", sizeof(GraphCall), 0,
                    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_HAVE_GC, slots};

PyModuleDef module = {PyModuleDef_HEAD_INIT, "_graph_call", nullptr, -1, nullptr};

}  // namespace

PyMODINIT_FUNC PyInit__graph_call() {
  started_name = PyUnicode_InternFromString("started");
  PyObject* created = started_name == nullptr ? nullptr : PyModule_Create(&module);
  if (created == nullptr) return nullptr;
  PyObject* type = PyType_FromModuleAndSpec(created, &spec, nullptr);
  if (type == nullptr || PyModule_AddObjectRef(created, "GraphCall", type) < 0) Py_CLEAR(created);
  Py_XDECREF(type);
  // For Python to compare with its own.
  if (created != nullptr && PyModule_AddIntConstant(created, "gate_size", sizeof(Gate)) < 0) {
    Py_CLEAR(created);
  }
  return created;
}
