// Lines of ops that Python's part has told, so that it is asked once for each: that takes longer
// than an op does.

#pragma once

#include "_op_state.h"

namespace {

constexpr int64_t kUnknownLine = -2;
constexpr int kMaxDepth = 200;        // of frames, as `lines.py` has it
constexpr size_t kMaxBackwards = 64;  // that are under way, and some that were

// Code, and an offset in its bytecode.
struct Spot {
  PyObject* code;
  int32_t offset;
  bool operator==(const Spot& other) const { return code == other.code && offset == other.offset; }
};

struct SpotHash {
  size_t operator()(const Spot& spot) const {
    return std::hash<PyObject*>()(spot.code) ^ size_t(spot.offset) * 0x9e3779b97f4a7c15u;
  }
};

// Whoever has the interpreter may touch it. Code is held, or its address could become another's.
struct KnownLines {
  std::unordered_set<PyObject*> passed;  // whose frames are no user's
  std::unordered_map<Spot, int64_t, SpotHash> numbers;
  // By their numbers; a thread that works for one has no frame of its own.
  std::unordered_map<int64_t, int64_t> backwards;
  PyObject* current_backward = nullptr;  // a function
};

KnownLines& known_lines() {
  static KnownLines& known = *new KnownLines();
  return known;
}

void clear_lines() {
  KnownLines& known = known_lines();
  known.backwards.clear();
  for (const auto& [spot, number] : std::exchange(known.numbers, {})) {
    Py_DecRef(spot.code);
  }
}

// The number of the backward that this thread works for; -1: of none, or it cannot be asked.
int64_t current_backward() {
  PyObject* function = known_lines().current_backward;
  if (function == nullptr || PyErr_Occurred() != nullptr) {
    return -1;
  }
  PyObject* number = PyObject_CallNoArgs(function);
  const int64_t backward = number == nullptr ? -1 : PyLong_AsLongLong(number);
  if (PyErr_Occurred() != nullptr) {
    PyErr_Clear();  // none but that of this call
  }
  Py_DecRef(number);
  return backward;
}

// The number of the line that this thread is on; kUnknownLine where Python has to be asked.
int64_t known_line() {
  const KnownLines& known = known_lines();
  PyObject* frame = PyEval_GetFrame();
  Py_IncRef(frame);
  for (int depth = 0; frame != nullptr && depth < kMaxDepth; ++depth) {
    PyObject* code = PyFrame_GetCode(frame);
    Py_DecRef(code);  // the frame has it
    if (known.passed.count(code) == 0) {
      const auto found = known.numbers.find({code, PyFrame_GetLasti(frame)});
      Py_DecRef(frame);
      return found == known.numbers.end() ? kUnknownLine : found->second;
    }
    PyObject* back = PyFrame_GetBack(frame);
    Py_DecRef(frame);
    frame = back;
  }
  Py_DecRef(frame);
  const auto found = known.backwards.find(current_backward());
  return found == known.backwards.end() ? kUnknownLine : found->second;
}

}  // namespace
