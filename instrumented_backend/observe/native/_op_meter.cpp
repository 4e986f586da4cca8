// The op meter's native part: counts and times the ops that a program runs outside compiled
// regions.
//
// A global RecordFunction callback, there only while a window is open. An op is the outermost event
// of its thread that is none of PyTorch's own wrappers. Python says when a thread enters and leaves
// a region. Ops are booked to the "gap" that follows a graph's call, because a sampled run is
// extrapolated gap by gap from the calls, which are counted exactly.
//
// Plain C functions, called with ctypes. Only ATen/record_function.h is included: it builds in
// seconds, and without pybind11.

#include <ATen/record_function.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <ctime>
#include <exception>
#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

// Of the Python that has loaded this; its headers would tie the library to one version of it.
extern "C" {
int PyGILState_Ensure();
void PyGILState_Release(int state);
int PyOS_InterruptOccurred();
int PyErr_SetInterruptEx(int signal);
}

namespace at {
TORCH_API bool in_parallel_region();  // ATen/Parallel.h, which takes seconds more to compile
}

namespace {

constexpr int64_t kNoGap = 0;  // before the first region of all
constexpr size_t kMaxCells = 32768;
constexpr uint32_t kMaxOrdinals = 64;
constexpr uint32_t kNoCell = ~0u;
constexpr uint32_t kHeard = 3;  // most ops have one or two events inside
// The first op of a cell is sampled, and the n-th with a chance of 1 in `kThinning * n`, for which
// it stands for so many: enough where it is always on the same line, as most are.
constexpr double kThinning = 2;
constexpr char kNodePrefix[] = "autograd::engine::evaluate_function: ";
constexpr size_t kNodePrefixLength = sizeof(kNodePrefix) - 1;

int64_t now_ns(clockid_t clock = CLOCK_MONOTONIC) {
  timespec t;
  clock_gettime(clock, &t);
  return int64_t(t.tv_sec) * 1000000000 + t.tv_nsec;
}

// Sums over the times that one thing was observed, for means and variances.
struct Sums {
  double n = 0, ops = 0, ops2 = 0, op_ns = 0, op_ns2 = 0, region_ns = 0, region_ns2 = 0;
  double rounds = 0, round_ns = 0;  // from a region's start to that of the next on its thread
  double nested = 0;                // calls inside another region; in a key's first gap
};

// The ops of one name in one gap, told apart by whether they are the gap's first of that name, its
// second, ...: mostly, each of these is always on the same line of the program. A cache line each,
// in the order in which they first ran: what else a step does has mostly driven them out of the
// cache.
struct alignas(64) Cell {
  size_t hash;       // of the name
  const char* name;  // interned
  int64_t gap;
  int64_t count = 0;
  int64_t ns = 0;
  uint32_t ordinal;
  uint32_t first;                // the cell with that name's first op in the gap
  uint32_t successor = kNoCell;  // the cell that came after it last time, on any thread
  uint32_t next = 0;             // of a first one: the ordinal of its name's next op in that pass
  uint64_t pass = 0;             // of the gap, by the thread that was here last
};
static_assert(sizeof(Cell) == 64);

// As it is handed out.
struct Row {
  const char* name;
  int64_t gap;
  int64_t ordinal;
  int64_t count;
  int64_t ns;
};

struct Key {
  const char* name;  // interned
  int64_t gap;
  uint32_t ordinal;
  bool operator==(const Key& other) const = default;
};

struct KeyHash {
  size_t operator()(const Key& key) const {
    return (std::hash<const void*>()(key.name) * 1000003u ^ size_t(key.gap)) * 1000003u ^
           key.ordinal;
  }
};

// Called for a sampled op: name, gap, ordinal, nanoseconds, how many ops the sample stands for.
// True where Ctrl-C came meanwhile: Python would lose the exception of a callback.
using Sampler = bool (*)(const char*, int64_t, int64_t, int64_t, double);

// Looks names up without making a string of each.
struct NameHash {
  using is_transparent = void;
  size_t operator()(std::string_view name) const { return std::hash<std::string_view>()(name); }
};

struct Meter {
  std::mutex mutex;  // for all below
  std::unordered_set<std::string, NameHash, std::equal_to<>> names;
  std::vector<Cell> cells;
  std::unordered_map<Key, uint32_t, KeyHash> places;  // in `cells`
  std::vector<Sums> gaps;
  Sampler sampler = nullptr;
  bool sample_each = false;
  int64_t early_calls = 3;
  int64_t lost = 0;

  Sums& at(int64_t gap) {
    if (size_t(gap) >= gaps.size()) {
      gaps.resize(gap + 1);
    }
    return gaps[gap];
  }

  const char* intern(std::string_view name) {
    auto found = names.find(name);
    return (found == names.end() ? names.emplace(name).first : found)->c_str();
  }

  // The cell of an op in the pass under way; kNoCell if there are too many.
  uint32_t place(std::string_view name, size_t hash, int64_t gap, uint64_t pass) {
    Key key{intern(name), gap, 0};
    const auto first = places.find(key);
    if (first == places.end()) {
      return add(key, hash, cells.size());
    }
    key.ordinal = ordinal(cells[first->second], pass);
    const auto found = places.find(key);
    if (found != places.end()) {
      return found->second;
    }
    const uint32_t added = add(key, hash, first->second);
    return added == kNoCell ? first->second : added;
  }

  // Of the next op of a name, by its first cell.
  static uint32_t ordinal(const Cell& first, uint64_t pass) {
    return first.pass == pass ? first.next : 0;
  }

 private:
  uint32_t add(const Key& key, size_t hash, uint32_t first) {
    if (cells.size() >= kMaxCells) {
      return kNoCell;
    }
    const uint32_t index = cells.size();
    Cell& cell = cells.emplace_back();
    cell.hash = hash;
    cell.name = key.name;
    cell.gap = key.gap;
    cell.ordinal = key.ordinal;
    cell.first = first;
    places.emplace(key, index);
    return index;
  }
};

// Never destroyed: events may end while the process does.
Meter& meter() {
  static Meter* instance = new Meter;
  return *instance;
}

std::atomic<bool> open_now{false};
// Somebody else's callbacks were there before ours.
std::atomic<bool> has_company{false};
// What a window costs: the callback's calls; those of them that are ops; autograd nodes among
// these, whose names PyTorch puts together for us; samples taken, and the CPU time that they took;
// how often a thread was silenced.
struct Work {
  uint64_t events = 0, ops = 0, nodes = 0, samples = 0, sample_ns = 0, silences = 0;
};

std::mutex work_mutex;
Work work;
std::atomic<uint64_t> passes{1};
std::atomic<uint64_t> windows{0};
std::atomic<int64_t> last_gap{kNoGap};  // of any thread, for threads without regions of their own
at::CallbackHandle handle = at::INVALID_CALLBACK_HANDLE;

struct Thread {
  uint32_t depth = 0;           // events under way that we saw start
  uint32_t op_depth = 0;        // the depth of the op under way; 0: none
  bool is_compilation = false;  // what is under way as an op
  uint32_t regions = 0;
  uint32_t quiet = 0;  // compiling, or sampling
  uint32_t inner = 0;  // events inside the op or region under way
  bool silenced = false;
  Work work;  // not yet in the sum of all threads
  int64_t op_start = 0;
  int64_t region_start = 0;
  int64_t round_start = 0;
  uint64_t round_window = 0;  // in which the round under way began
  int64_t quiet_start = 0;
  int64_t region_in_op = 0;  // time of regions inside the op under way
  int64_t gap = -1;          // that this thread's last region opened; -1: it had none
  int64_t pending_gap = kNoGap;
  double pending_ops = 0, pending_ns = 0;  // in the gap under way
  uint64_t pass = 0;                       // of that gap: changes with each of this thread's
  uint32_t last_cell = kNoCell;            // where this thread's last op was booked
  uint32_t random = 2463534242u;
};

thread_local Thread self;

// The gap after a graph's calls: one for the first `early_calls` observed calls of a key, whose ops
// are not extrapolated, and one for all later ones. Keys start at 1. `keys.py` says the same.
int64_t gap_of(int64_t key, bool late) { return 2 * key + late; }

bool is_node(const char* name) { return std::strncmp(name, kNodePrefix, kNodePrefixLength) == 0; }

const char* op_name(const char* name) { return is_node(name) ? name + kNodePrefixLength : name; }

// Counts an op; where, or nullptr if there are too many cells.
const Cell* book(Meter& m, Thread& t, std::string_view name, int64_t gap, int64_t ns) {
  const size_t hash = NameHash()(name);
  // Mostly the one that came next last time comes next.
  uint32_t index = t.last_cell < m.cells.size() ? m.cells[t.last_cell].successor : kNoCell;
  if (index != kNoCell) {
    const Cell& cell = m.cells[index];
    if (cell.hash != hash || cell.gap != gap ||
        cell.ordinal != Meter::ordinal(m.cells[cell.first], t.pass)) {
      index = kNoCell;
    }
  }
  if (index == kNoCell) {
    index = m.place(name, hash, gap, t.pass);
    if (index == kNoCell) {
      ++m.lost;
      return nullptr;
    }
    if (t.last_cell < m.cells.size()) {
      m.cells[t.last_cell].successor = index;
    }
  }
  t.last_cell = index;
  Cell& cell = m.cells[index];
  Cell& first = m.cells[cell.first];
  first.next = std::min(Meter::ordinal(first, t.pass) + 1, kMaxOrdinals);
  first.pass = t.pass;
  ++cell.count;
  cell.ns += ns;
  return &cell;
}

void flush_work(Thread& t) {
  if (t.work.events == 0) {
    return;
  }
  std::lock_guard<std::mutex> lock(work_mutex);
  work.events += t.work.events;
  work.ops += t.work.ops;
  work.nodes += t.work.nodes;
  work.samples += t.work.samples;
  work.sample_ns += t.work.sample_ns;
  work.silences += t.work.silences;
  t.work = Work();
}

// What a thread ran in the gap that is over.
void flush_gap(Thread& t, Meter& m) {
  if (t.pending_ops > 0) {
    Sums& sums = m.at(t.pending_gap);
    sums.ops += t.pending_ops;
    sums.ops2 += t.pending_ops * t.pending_ops;
    sums.op_ns += t.pending_ns;
    sums.op_ns2 += t.pending_ns * t.pending_ns;
  }
  t.pending_ops = t.pending_ns = 0;
  t.pass = passes.fetch_add(1, std::memory_order_relaxed);
  flush_work(t);
}

bool starts_with(const char* text, const char* prefix) {
  return std::strncmp(text, prefix, std::strlen(prefix)) == 0;
}

// Ops of PyTorch's own making: they are none, but what they enclose may be.
bool is_wrapper(const char* name) {
  switch (name[0]) {
    case 'T':
      return starts_with(name, "Torch-Compiled Region") || starts_with(name, "TorchDynamo ");
    case 'P':
      return starts_with(name, "Pregraph bytecode") || starts_with(name, "ProfilerStep");
    case 'A':
      return starts_with(name, "AOTDispatcher ");
    case '#':
      return starts_with(name, "## Call CompiledFxGraph");
    case 'C':
      return starts_with(name, "CompiledFunction");
    case 'O':
      return starts_with(name, "Optimizer.");
    default:
      return false;
  }
}

// Dynamo marks its compilations while a profiler is on.
bool is_compilation(const char* name) {
  return std::strcmp(name, "dynamo") == 0 || starts_with(name, "entire_backward_compile");
}

// What is inside an op or a region is nothing to us, and takes PyTorch 0.1 us an event. From the
// third on it makes none on this thread; to switch that off and on again takes 0.45 us. Only while
// the callback is the only one: others want to see them.
void silence(Thread& t) {
  if (has_company.load(std::memory_order_relaxed) || at::hasThreadLocalCallbacks()) {
    return;
  }
  const auto listening = at::getStepCallbacksUnlessEmpty(at::RecordScope::FUNCTION);
  if (listening.has_value() && listening->callbacks_.size() == 1) {
    at::enableRecordFunction(false);
    t.silenced = true;
    ++t.work.silences;
  }
}

void listen_again(Thread& t) {
  t.inner = 0;
  if (t.silenced) {
    at::enableRecordFunction(true);
    t.silenced = false;
  }
}

std::unique_ptr<at::ObserverContext> on_start(const at::RecordFunction& event) {
  Thread& t = self;
  ++t.depth;
  ++t.work.events;
  if (t.op_depth || t.regions) {
    if (++t.inner == kHeard && t.quiet == 0) {
      silence(t);
    }
    return nullptr;
  }
  if (t.quiet) {
    return nullptr;
  }
  const char* name = event.name();
  t.work.nodes += is_node(name);
  if (is_wrapper(op_name(name))) {
    return nullptr;
  }
  if (at::in_parallel_region()) {
    return nullptr;  // a worker's share of an op that another thread runs
  }
  t.is_compilation = is_compilation(name);
  ++t.work.ops;
  t.op_depth = t.depth;
  t.region_in_op = 0;
  t.op_start = now_ns();
  return nullptr;
}

void on_end(const at::RecordFunction& event, at::ObserverContext*) {
  Thread& t = self;
  if (t.depth == 0) {
    return;  // it began on another thread
  }
  if (t.depth-- != t.op_depth) {
    return;
  }
  t.op_depth = 0;
  listen_again(t);
  if (t.is_compilation || !open_now.load(std::memory_order_relaxed)) {
    return;  // no op, or it outlasted the window
  }
  const int64_t ns = now_ns() - t.op_start - t.region_in_op;
  int64_t gap = t.gap;
  if (gap < 0) {
    gap = last_gap.load(std::memory_order_relaxed);
  }
  Sampler sampler = nullptr;
  double weight = 1;
  const char* name;
  uint32_t ordinal;
  {
    Meter& m = meter();
    std::lock_guard<std::mutex> lock(m.mutex);
    if (gap != t.pending_gap) {
      flush_gap(t, m);
      t.pending_gap = gap;
    }
    t.pending_ops += 1;
    t.pending_ns += double(ns);
    const Cell* cell = book(m, t, op_name(event.name()), gap, ns);
    if (cell == nullptr) {
      return;
    }
    name = cell->name;
    ordinal = cell->ordinal;
    if (m.sampler) {
      if (cell->count == 1 || m.sample_each) {
        sampler = m.sampler;
      } else {
        weight = kThinning * double(cell->count);
        t.random ^= t.random << 13;
        t.random ^= t.random >> 17;
        t.random ^= t.random << 5;
        if (double(t.random) * weight < 4294967296.0) {
          sampler = m.sampler;
        }
      }
    }
  }
  // While an op's exception passes through here, Python has it: nothing of Python's may be called.
  if (sampler && std::uncaught_exceptions() == 0) {
    ++t.quiet;
    const int64_t start = now_ns(CLOCK_THREAD_CPUTIME_ID);
    // Mostly, Ctrl-C comes while an op computes: then it is for the program, and nothing is
    // sampled.
    const int gil = PyGILState_Ensure();
    if (PyOS_InterruptOccurred() || sampler(name, gap, ordinal, ns, weight)) {
      PyErr_SetInterruptEx(SIGINT);
    }
    PyGILState_Release(gil);
    t.work.sample_ns += now_ns(CLOCK_THREAD_CPUTIME_ID) - start;
    ++t.work.samples;
    --t.quiet;
  }
}

}  // namespace

extern "C" {

int64_t op_meter_gap(int64_t key, int32_t late) { return gap_of(key, late); }

// The size of a struct that is handed out, by its name in native.py, for Python to compare with its
// own; 0 where there is none of that name.
int64_t op_meter_size(const char* name) {
  const std::string_view asked = name;
  if (asked == "Row") return sizeof(Row);
  if (asked == "Sums") return sizeof(Sums);
  if (asked == "Work") return sizeof(Work);
  return 0;
}

void op_meter_open() {
  if (handle != at::INVALID_CALLBACK_HANDLE) {
    return;
  }
  ++windows;
  open_now = true;
  has_company = at::hasGlobalCallbacks();
  // Not BACKWARD_FUNCTION: the engine's own FUNCTION event encloses the one of each node, and a
  // second name put together for each would cost 2 us.
  handle = at::addGlobalCallback(
      at::RecordFunctionCallback(on_start, on_end).scopes({at::RecordScope::FUNCTION}));
}

void op_meter_close() {
  if (handle == at::INVALID_CALLBACK_HANDLE) {
    return;
  }
  at::removeCallback(handle);
  handle = at::INVALID_CALLBACK_HANDLE;
  open_now = false;
  Meter& m = meter();
  std::lock_guard<std::mutex> lock(m.mutex);
  flush_gap(self, m);
}

void op_meter_enter() {
  Thread& t = self;
  if (t.regions++ == 0) {
    listen_again(t);
    {
      Meter& m = meter();
      std::lock_guard<std::mutex> lock(m.mutex);
      flush_gap(t, m);
      t.region_start = now_ns();
      if (t.gap >= 0 && t.round_window == windows) {
        Sums& sums = m.at(t.gap);
        sums.rounds += 1;
        sums.round_ns += double(t.region_start - t.round_start);
      }
    }
    t.round_start = t.region_start;
    t.round_window = windows;
  }
}

void op_meter_leave(int64_t key) {
  Thread& t = self;
  if (t.regions == 0) {
    return;
  }
  if (--t.regions > 0) {
    if (open_now.load(std::memory_order_relaxed)) {
      Meter& m = meter();
      std::lock_guard<std::mutex> lock(m.mutex);
      m.at(gap_of(key, false)).nested += 1;
    }
    return;
  }
  if (t.op_depth == 0) {
    listen_again(t);
  }
  const int64_t ns = now_ns() - t.region_start;
  t.region_in_op += ns;
  if (!open_now.load(std::memory_order_relaxed)) {
    return;
  }
  Meter& m = meter();
  std::lock_guard<std::mutex> lock(m.mutex);
  const bool late = m.at(gap_of(key, false)).n >= double(m.early_calls);
  const int64_t gap = gap_of(key, late);
  Sums& sums = m.at(gap);
  sums.n += 1;
  sums.region_ns += double(ns);
  sums.region_ns2 += double(ns) * double(ns);
  t.gap = gap;
  last_gap.store(gap, std::memory_order_relaxed);
}

// What this thread runs from here to the matching call with -1 is not the program's.
void op_meter_quiet(int32_t change) {
  Thread& t = self;
  if (t.quiet == 0) {
    // A graph can be compiled inside an op. What is counted for it needs events.
    listen_again(t);
    t.quiet_start = now_ns();
  }
  t.quiet += change;
  if (t.quiet == 0) {
    const int64_t ns = now_ns() - t.quiet_start;
    t.round_start += ns;
    t.region_start += ns;
    t.op_start += ns;
    t.inner = 0;
  }
}

// `each`: every op, instead of fewer and fewer; a null sampler takes none.
void op_meter_sample(Sampler sampler, int32_t each) {
  Meter& m = meter();
  std::lock_guard<std::mutex> lock(m.mutex);
  m.sampler = sampler;
  m.sample_each = each;
}

void op_meter_work(Work* out) {
  flush_work(self);
  std::lock_guard<std::mutex> lock(work_mutex);
  *out = work;
}

void op_meter_clear() {
  Meter& m = meter();
  std::lock_guard<std::mutex> lock(m.mutex);
  m.places.clear();
  m.cells.clear();
  m.gaps.clear();
  m.lost = 0;
  self.pending_ops = self.pending_ns = 0;
  self.gap = -1;
  last_gap = kNoGap;
}

// Copy out at most `capacity` records; returns how many there are.
int64_t op_meter_rows(Row* out, int64_t capacity) {
  Meter& m = meter();
  std::lock_guard<std::mutex> lock(m.mutex);
  const int64_t size = m.cells.size();
  for (int64_t i = 0; i < std::min(size, capacity); ++i) {
    const Cell& cell = m.cells[i];
    out[i] = Row{cell.name, cell.gap, cell.ordinal, cell.count, cell.ns};
  }
  return size;
}

int64_t op_meter_gaps(Sums* out, int64_t capacity) {
  Meter& m = meter();
  std::lock_guard<std::mutex> lock(m.mutex);
  flush_gap(self, m);
  for (size_t i = 0; i < m.gaps.size() && i < size_t(capacity); ++i) {
    out[i] = m.gaps[i];
  }
  return int64_t(m.gaps.size());
}

int64_t op_meter_lost() {
  Meter& m = meter();
  std::lock_guard<std::mutex> lock(m.mutex);
  return m.lost;
}

// In a forked child: the lock may have been held by a thread that exists no more.
void op_meter_after_fork() {
  new (&meter().mutex) std::mutex;
  new (&work_mutex) std::mutex;
  listen_again(self);
  self = Thread();
  op_meter_close();
  op_meter_clear();
}

}  // extern "C"

// --- Counting on one thread, for the ops that a graph's nodes would dispatch ---------------------

namespace {

thread_local int64_t counted = 0;
thread_local int64_t counting_depth = 0;

std::unique_ptr<at::ObserverContext> count_start(const at::RecordFunction&) {
  counted += counting_depth++ == 0;
  return nullptr;
}

void count_end(const at::RecordFunction&, at::ObserverContext*) { --counting_depth; }

}  // namespace

extern "C" {

uint64_t op_count_begin() {
  counted = counting_depth = 0;
  return at::addThreadLocalCallback(
      at::RecordFunctionCallback(count_start, count_end)
          .scopes({at::RecordScope::FUNCTION, at::RecordScope::BACKWARD_FUNCTION}));
}

// The outermost ops since the last call.
int64_t op_count_take() {
  const int64_t result = counted;
  counted = 0;
  return result;
}

void op_count_end(uint64_t handle) { at::removeCallback(handle); }

}  // extern "C"
