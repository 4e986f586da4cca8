// Calls of PyTorch's functions from Python, all of them: how often an op runs that the program
// calls itself is known then, whatever windows meet. They see which ops a call runs.
//
// A method of tensors is an object that Python calls by an entry of a table of PyTorch's. There one
// of ours takes its place, which counts, and goes on to it. Functions of modules are told apart by
// that entry, in sets and as keys: of these ours is in the object itself, where it is called first.
// After an op nothing of ours is in the caches, so that a call touches few of their lines.

#pragma once

#include <dlfcn.h>
#include <link.h>

#include "_op_state.h"

using CFunction = PyObject*(PyObject*, PyObject*, PyObject*);
using VectorCall = PyObject*(PyObject*, PyObject* const*, size_t, PyObject*);

// As Python's stable ABI has it.
struct PyMethodDef {
  const char* ml_name;
  CFunction* ml_meth;
  int ml_flags;
  const char* ml_doc;
};

constexpr size_t kMaxFunctions = 2048;  // PyTorch has 1,600
constexpr size_t kEntrySize = 32;
constexpr uint32_t kOftenCalled = 3;   // from one look to the next: a window would meet one
constexpr uint8_t kLooksForCalls = 4;  // that lead to a window, for one function
constexpr int kFastCall = 0x80;        // of `ml_flags`: METH_FASTCALL, with up to four arguments
constexpr size_t kVectorCallBits = size_t(1) << (8 * sizeof(size_t) - 1);  // of the arguments' size

// Whoever has the interpreter may touch all of it.
struct alignas(kCacheLine) Function {
  CFunction* original = nullptr;
  uint64_t calls = 0;
  // What windows saw: so many calls, the ops of the first, and whether another one had others.
  uint64_t seen = 0, ops = 0;
  bool differ = false;
  uint8_t looks = 0;    // of the thread that opens windows, which found many more calls
  uint32_t looked = 0;  // how many there were at the last one
  PyMethodDef* entry = nullptr;
  VectorCall** vectorcall = nullptr;  // of a function of a module
  uint64_t before = 0;                // calls that are none of this run's
};
static_assert(kMaxFunctions == 2048 && sizeof(Function) == 64 && offsetof(Function, calls) == 8,
              "as entries have it");

// Read by every call.
struct alignas(kCacheLine) ForCalls {
  // Nobody looks while both are 0: at what a call runs, or at which thread it is on.
  std::atomic<uint16_t> is_seen{0};
  uint16_t aside = 0;  // threads in regions, or that compile; with the interpreter lock
  // The window that sees all ops from here on; 0: none. Before its callback goes, it is none.
  std::atomic<uint64_t> seen_by{0};
  // What calls an object that has no vectorcall of its own, as Python does.
  PyObject* (*make_call)(void* thread, PyObject* function, PyObject* const* args, intptr_t size,
                         PyObject* keywords) = nullptr;
  void* (*thread)() = PyThreadState_Get;  // asked here, and not of the linker's table
};

namespace {

struct Functions {
  std::atomic<size_t> size{0};
  std::unordered_map<PyMethodDef*, size_t> numbers;
  std::vector<std::vector<const char*>> names;  // of the ops of a call; interned
};

Functions& functions() {
  static Functions& all = *new Functions();
  return all;
}

}  // namespace

#define INSTRUMENTED_HIDDEN [[gnu::visibility("hidden")]]
extern "C" {
INSTRUMENTED_HIDDEN ForCalls op_meter_for_calls;
INSTRUMENTED_HIDDEN Function op_meter_table[kMaxFunctions];
INSTRUMENTED_HIDDEN extern const char op_meter_entries[];
INSTRUMENTED_HIDDEN extern const char op_meter_vector_entries[];
INSTRUMENTED_HIDDEN PyObject* op_meter_called(PyObject* self, PyObject* args, PyObject* kwargs,
                                              uint32_t number);
INSTRUMENTED_HIDDEN PyObject* op_meter_call(PyObject* function, PyObject* const* args, size_t size,
                                            PyObject* keywords);
INSTRUMENTED_HIDDEN PyObject* op_meter_vector_called(PyObject* function, PyObject* const* args,
                                                     size_t size, PyObject* keywords,
                                                     uint32_t number);
}

// An entry for each function, as nothing else tells them apart. Mostly it does all there is to do;
// or it passes its number on, as one argument more.
#define INSTRUMENTED_ENTRIES(entries, each)     \
  ".hidden " entries                            \
  "\n"                                          \
  ".globl " entries                             \
  "\n"                                          \
  ".p2align 5\n" entries                        \
  ":\n"                                         \
  ".set op_meter_number, 0\n"                   \
  ".rept 2048\n"                                \
  ".p2align 5\n" each                           \
  ".set op_meter_number, op_meter_number + 1\n" \
  ".endr\n"
#if defined(__x86_64__)
#define INSTRUMENTED_ENTRY(number_in, slowly, goes_on)             \
  "cmpl $0, op_meter_for_calls(%rip)\n"                            \
  "jne 1f\n"                                                       \
  "incq op_meter_table + 64 * op_meter_number + 8(%rip)\n" goes_on \
  "1: movl $op_meter_number, " number_in "\njmp " slowly "\n"
#define INSTRUMENTED_METHOD                     \
  INSTRUMENTED_ENTRY("%ecx", "op_meter_called", \
                     "jmp *op_meter_table + 64 * op_meter_number(%rip)\n")
#define INSTRUMENTED_FUNCTION \
  INSTRUMENTED_ENTRY("%r8d", "op_meter_vector_called", "jmp op_meter_call\n")
#elif defined(__aarch64__)
#define INSTRUMENTED_METHOD "movz w3, #op_meter_number\nb op_meter_called\n"
#define INSTRUMENTED_FUNCTION "movz w4, #op_meter_number\nb op_meter_vector_called\n"
#else
#error "an entry for each function"
#endif
asm(".text\n" INSTRUMENTED_ENTRIES("op_meter_entries", INSTRUMENTED_METHOD)
        INSTRUMENTED_ENTRIES("op_meter_vector_entries", INSTRUMENTED_FUNCTION));

namespace {

// Which window sees all ops from here on; 0: none.
void see_calls(uint64_t window) {
  op_meter_for_calls.seen_by = window;
  op_meter_for_calls.is_seen = window != 0;
}

// The run begins. With the interpreter lock.
void forget_calls() {
  Functions& f = functions();
  for (size_t i = 0; i < f.names.size(); ++i) {
    const Function& old = op_meter_table[i];
    op_meter_table[i] = {.original = old.original,
                         .calls = old.calls,
                         .entry = old.entry,
                         .vectorcall = old.vectorcall,
                         .before = old.calls};
    f.names[i].clear();
  }
}

// Is a function being called, again and again, that no window has seen? Without the interpreter
// lock.
bool is_unknown_called() {
  bool found = false;
  const size_t size = functions().size.load();
  for (size_t i = 0; i < size; ++i) {
    Function& function = op_meter_table[i];
    const auto calls = uint32_t(std::atomic_ref(function.calls).load(std::memory_order_relaxed));
    const uint32_t before = std::exchange(function.looked, calls);
    // It may have been called long ago when it is looked at first.
    if (before > 0 && calls - before >= kOftenCalled && function.looks < kLooksForCalls &&
        std::atomic_ref(function.seen).load(std::memory_order_relaxed) == 0) {
      ++function.looks;
      found = true;
    }
  }
  return found;
}

// Of an op that the call under way runs, the name.
void see_op_of_call(Thread& t, const char* name) {
  const uint64_t hash = std::hash<std::string_view>()(name);
  t.from_python.ops = (t.from_python.ops + hash) * 0x9e3779b97f4a7c15u;
  if (t.from_python.size < kMaxOpsOfCall) {
    t.from_python.names[t.from_python.size] = name;
  }
  ++t.from_python.size;
}

// A call that is older than the window may run the op: not where another one has begun since. Nor
// on threads that have none.
bool is_caller_known(Thread& t) {
  return t.from_python.function != kNoFunction ||
         t.called_in == op_meter_for_calls.seen_by.load(std::memory_order_relaxed) ||
         (t.called_in == 0 && !is_main(t));
}

// The first call of a function that a window saw.
[[gnu::noinline]] void know_ops(const CallUnderWay& call) {
  Meter& m = meter();
  std::lock_guard<Mutex> lock(m.mutex);
  Function& function = op_meter_table[call.function];
  std::vector<const char*>& names = functions().names[call.function];
  function.ops = call.ops;
  function.differ = call.size > kMaxOpsOfCall;
  for (size_t i = 0; i < std::min<size_t>(call.size, kMaxOpsOfCall); ++i) {
    names.push_back(intern(m, call.names[i]));
  }
}

// A window is open, and sees which ops the call has, but for those of calls inside it.
template <typename Run>
[[gnu::noinline]] PyObject* see_call(Thread& t, uint32_t number, uint64_t seen_by, Run run) {
  t.called_in = seen_by;
  const CallUnderWay outer = std::exchange(t.from_python, CallUnderWay{.function = number});
  PyObject* result = run();
  const CallUnderWay call = std::exchange(t.from_python, outer);
  if (seen_by == op_meter_for_calls.seen_by.load(std::memory_order_relaxed)) {
    Function& function = op_meter_table[number];
    if (function.seen == 0) {
      know_ops(call);
    } else if (function.ops != call.ops) {
      function.differ = true;
    }
    std::atomic_ref(function.seen).store(function.seen + 1, std::memory_order_relaxed);
  }
  return result;
}

// `run` is a call of that function.
template <typename Run>
PyObject* count(uint32_t number, Run run) {
  Thread& t = own_state;
  if (t.regions > 0 || t.quiet > 0) {
    return run();  // inside a region, or the compiler's
  }
  ++op_meter_table[number].calls;
  const uint64_t seen_by = op_meter_for_calls.seen_by.load(std::memory_order_relaxed);
  return seen_by == 0 ? run() : see_call(t, number, seen_by, run);
}

// Where PyTorch's code for Python is.
struct Code {
  uintptr_t begin = UINTPTR_MAX, end = 0;
};

int add_code(dl_phdr_info* library, size_t, void* found) {
  if (std::strstr(library->dlpi_name, "libtorch_python") != nullptr) {
    auto& [begin, end] = *static_cast<Code*>(found);
    for (int i = 0; i < library->dlpi_phnum; ++i) {
      const auto& part = library->dlpi_phdr[i];
      if (part.p_type == PT_LOAD && (part.p_flags & PF_X) != 0) {
        begin = std::min<uintptr_t>(begin, library->dlpi_addr + part.p_vaddr);
        end = std::max<uintptr_t>(end, library->dlpi_addr + part.p_vaddr + part.p_memsz);
      }
    }
  }
  return 0;
}

// Not ours already, nor Python's own, such as what makes objects: that it knows by its address.
bool is_torchs(const PyMethodDef& entry) {
  static const Code code = [] {
    Code found;
    dl_iterate_phdr(add_code, &found);
    return found;
  }();
  const auto address = reinterpret_cast<uintptr_t>(entry.ml_meth);
  return address >= code.begin && address < code.end;
}

template <typename Called>
Called* entry_of(const char* entries, size_t number) {
  return reinterpret_cast<Called*>(const_cast<char*>(entries + kEntrySize * number));
}

}  // namespace

extern "C" {

PyObject* op_meter_called(PyObject* self, PyObject* args, PyObject* kwargs, uint32_t number) {
  CFunction* original = op_meter_table[number].original;
  return count(number, [=] { return original(self, args, kwargs); });
}

PyObject* op_meter_call(PyObject* function, PyObject* const* args, size_t size,
                        PyObject* keywords) {
  return op_meter_for_calls.make_call(op_meter_for_calls.thread(), function, args,
                                      intptr_t(size & ~kVectorCallBits), keywords);
}

PyObject* op_meter_vector_called(PyObject* function, PyObject* const* args, size_t size,
                                 PyObject* keywords, uint32_t number) {
  return count(number, [=] { return op_meter_call(function, args, size, keywords); });
}

// From here on; false where there is no room, or it is none of PyTorch's, or has too many
// arguments. Those without a third one do not look at it. `vectorcall`: where the object has that,
// if it is a function of a module. With the interpreter lock, as all of these.
int32_t op_meter_count_calls(PyMethodDef* entry, VectorCall** vectorcall) {
  Functions& f = functions();
  if (op_meter_for_calls.make_call == nullptr) {
    op_meter_for_calls.make_call = reinterpret_cast<decltype(op_meter_for_calls.make_call)>(
        dlsym(RTLD_DEFAULT, "_PyObject_MakeTpCall"));
  }
  if ((entry->ml_flags & kFastCall) != 0 || !is_torchs(*entry) ||
      (vectorcall != nullptr &&
       (*vectorcall != nullptr || op_meter_for_calls.make_call == nullptr))) {
    return false;
  }
  const size_t number = f.numbers.emplace(entry, f.names.size()).first->second;
  if (number == kMaxFunctions) {
    f.numbers.erase(entry);
    return false;
  }
  if (number == f.names.size()) {
    f.names.emplace_back();
    op_meter_table[number] = {.original = entry->ml_meth, .entry = entry, .vectorcall = vectorcall};
    f.size = f.names.size();
  }
  if (vectorcall != nullptr) {
    *vectorcall = entry_of<VectorCall>(op_meter_vector_entries, number);
  } else {
    entry->ml_meth = entry_of<CFunction>(op_meter_entries, number);
  }
  return true;
}

// Tables and functions are as they were.
void op_meter_uncount_calls() {
  Functions& f = functions();
  for (size_t i = 0; i < f.names.size(); ++i) {
    if (op_meter_table[i].vectorcall != nullptr) {
      *op_meter_table[i].vectorcall = nullptr;
    } else {
      op_meter_table[i].entry->ml_meth = op_meter_table[i].original;
    }
  }
}

}  // extern "C"
