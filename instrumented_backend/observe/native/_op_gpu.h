// The GPU's timeline: events on the streams that graphs are called on, while a window is open.
//
// One is recorded as a call of a graph begins and one as it ends, and round one op in some.
// The GPU notes the time when it gets there; that is read later, when it has been there: nothing is
// waited for. What lies between the two is the call's: on a GPU that is busy its kernels, and on
// one that waits for the host all the time that the call took.
//
// How far the GPU is behind the host at an event follows from the two clocks, whose distance is
// bounded: it gets to an event after the host has recorded it, and later than a look at it
// that finds it not to be there.
//
// Everything here is called without the meter's mutex: where its queue is full, CUDA waits.

#pragma once

#include "_op_state.h"

namespace {

constexpr int kNotReady = 600;  // cudaErrorNotReady
constexpr int kRelaxed = 2;     // cudaStreamCaptureModeRelaxed: a query breaks nobody's capture
constexpr size_t kEventsMade = 32, kMaxEventsMade = 4096;  // at once; in all, of a device
constexpr size_t kMaxOpCells = 16384;
constexpr int kPolled = 4;  // events that are looked at beside recording one
// Of a thread: all calls and one op in so many, on average, until a window has had so many of
// either; then, as in windows that never close, one in so many. Each takes the host 10 to 25 us.
constexpr uint32_t kManyCalls = 256, kCallEvery = 32;
constexpr uint32_t kOpEvery = 64, kManyOps = 128, kLaterOpEvery = 1024;
// A run's first ones tell the most, of programs that soon end. Later, what they take of the caches
// after they have been recorded, which is not measured, would hide some of the ops.
constexpr uint32_t kFirstOps = 512, kFirstOpEvery = 16;
constexpr int64_t kSpell = 250000000;  // for which the two clocks' distance is one
constexpr int64_t kLongestSpell = 10000000000;
constexpr int64_t kLongestRecordNs = 20000;  // what takes longer waited for the GPU
// The GPU is behind the host where it gets to an event so much later than the host: an idle one
// takes a few microseconds.
constexpr double kBehindNs = 50000;
constexpr int64_t kPollNs = 10000000, kLongestPollsNs = 200000000;  // when a window has closed
constexpr int64_t kUnknownOp = -1, kNoOp = 0;                       // of a gap's first op

// CUDA's runtime, and PyTorch's own C interface: of the libraries that the program has loaded.
struct GpuFunctions {
  int (*current_stream)(int32_t device, void** stream);
  int (*create_guard)(int32_t device, void** guard);
  int (*delete_guard)(void* guard);
  int (*current_device)(int* device);
  int (*is_capturing)(void* stream, int* status);
  int (*exchange_capture_mode)(int* mode);
  int (*create)(void** event);
  int (*record)(void* event, void* stream);
  int (*elapsed_ms)(float* ms, void* begin, void* end);
  int (*last_error)();
};

// An event that has been recorded, or was.
struct GpuMark {
  void* event = nullptr;
  void* stream = nullptr;
  int64_t host_ns = 0, recorded_ns = 0;  // before it was recorded, and after
  int64_t missed_ns = 0;                 // when it was last seen not to be there
  uint64_t span = 0;
  int64_t key = 0;
  bool begins = false;
  bool has_all = false;        // every call under way is timed
  bool is_first = false;       // of a call's begin: none of its graph's was read before
  uint32_t stands_for = 1;     // of a begin: so many calls or ops
  int64_t first_op_ns = 0;     // of a call's begin: of the gap before, the host's time
  int64_t own_ns = 0;          // of an end: the host's time in the span
  int64_t apart_ns = 0;        // of an end: compilations in the span, which are none of its time
  const char* name = nullptr;  // of an op's end: its name, if it was booked; interned
  uint64_t cell = 0;           // and its mark and slot
  double gpu_ns = 0, lag_ns = 0;
};

// Events for which the clocks' distance is taken as one.
struct Spell {
  uint64_t number;
  uint64_t window;
  Set set;
  void* base = nullptr;  // the first of its events
  int64_t since_ns = 0;
  int64_t open = 0;  // spans that have not ended
  std::deque<GpuMark> waiting = {};
  std::vector<GpuMark> read = {};
  double distance_ns = -1e300;  // of the host's clock and the base, at least
};

// Handed out, as the next two.
struct GpuTimeRow {
  int64_t device;
  // While every call under way was timed, and none was its graph's first: `n` of all calls, `ops`
  // with those at once counted once, and `op_ns` how much longer that is than where the same share
  // is at once as on the host.
  Seen at_once[kSets] = {};
  double seen_ns[kSets] = {};    // between events
  double behind_ns[kSets] = {};  // of it, while the GPU was behind the host
  double gap_ns[kSets] = {};     // between calls
  double idle_ns[kSets] = {};    // of it, before the host's first op
  double ends[kSets] = {};       // of calls
  double late_ns[kSets] = {};    // in all, how far the GPU was behind the host at these
  // Of all calls and ops that the GPU was behind at, from their begin to their end: what they took
  // it, and the host.
  double work_ns[kSets] = {};
  double asking_ns[kSets] = {};
  double more_ns = 0;  // of the whole run, by the host: `AtOnce`
};

struct GpuCallRow {
  int64_t key, device;
  double first_ns;   // of the first call, if a certain window saw it; negative: none
  Seen seen[kSets];  // `op_ns` the GPU's time, `ops` how much longer that is than the host's
  double host_ns[kSets];
  double first_host_ns;
};

struct GpuOpRow {
  int64_t mark, slot;
  const char* name;
  double n, ns;
};

struct GpuCalls {
  int64_t device = -1;
  double first_ns = -1, first_host_ns = 0;
  bool called = false, timed = false;  // is there one that was read, or one that will be
  std::array<Sums, kSets> sums;
  std::array<double, kSets> host_ns{};
};

struct GpuDevice {
  bool used = false;  // by graphs
  std::vector<void*> unused;
  size_t made = 0;
  std::deque<Spell> spells;
  GpuTimeRow times{};
  std::array<Sums, kSets> at_once;
};

// Of an op: its mark, -1 where there is none, and its slot.
uint64_t cell_id(int32_t mark, uint32_t slot) { return uint64_t(uint32_t(mark + 1)) << 32 | slot; }

struct GpuOpSum {
  const char* name;
  double n = 0, ns = 0;
};

struct Gpu {
  std::mutex mutex;  // a leaf
  std::atomic<bool> active{false};
  GpuFunctions functions{};
  std::array<GpuDevice, kMaxDevices> devices;
  std::vector<GpuCalls> calls;  // by region
  std::unordered_map<uint64_t, GpuOpSum> ops;
  uint64_t spans = 0, spells = 0;
  std::atomic<uint64_t> ops_timed{0};  // or could have been
  int error = 0;                       // CUDA's, after which nothing is recorded
};

Gpu& gpu() {
  static Gpu* instance = new Gpu();
  return *instance;
}

// While it is there, this thread's queries and events are allowed beside another's capture.
class Relaxed {
 public:
  Relaxed() { gpu().functions.exchange_capture_mode(&mode_); }
  ~Relaxed() { gpu().functions.exchange_capture_mode(&mode_); }
  Relaxed(const Relaxed&) = delete;
  Relaxed& operator=(const Relaxed&) = delete;

 private:
  int mode_ = kRelaxed;
};

// While it is there, that device is this thread's current one. A program may run graphs on another:
// what belongs to that one is an error there, the program's own, too, and may cost memory of it.
class OnDevice {
 public:
  explicit OnDevice(int32_t device) {
    int current = -1;
    ok_ = gpu().functions.current_device(&current) == 0 &&
          (current == device || gpu().functions.create_guard(device, &guard_) == 0);
  }
  ~OnDevice() {
    if (guard_ != nullptr) {
      gpu().functions.delete_guard(guard_);
    }
  }
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;
  explicit operator bool() const { return ok_; }

 private:
  bool ok_;
  void* guard_ = nullptr;
};

// While it is there, this thread has given the interpreter to others.
class WithoutInterpreter {
 public:
  WithoutInterpreter() : state_(PyGILState_Check() ? PyEval_SaveThread() : nullptr) {}
  ~WithoutInterpreter() {
    if (state_ != nullptr) {
      PyEval_RestoreThread(state_);
    }
  }
  WithoutInterpreter(const WithoutInterpreter&) = delete;
  WithoutInterpreter& operator=(const WithoutInterpreter&) = delete;

 private:
  void* state_;
};

// With its mutex. An error that lasts is the program's, too, and it gets it with its own next call;
// one of this call alone is taken back.
void gpu_failed(Gpu& g, int error) {
  g.functions.last_error();
  g.error = error;
  g.active = false;
}

// An event of that device, the current one, that is not in use; nullptr if there are too many. With
// the mutex.
void* take_event(Gpu& g, int32_t device) {
  GpuDevice& d = g.devices[device];
  if (d.unused.empty() && d.made < kMaxEventsMade) {
    for (size_t i = 0; i < kEventsMade; ++i) {
      void* event = nullptr;
      if (const int error = g.functions.create(&event); error != 0) {
        gpu_failed(g, error);
        break;
      }
      d.unused.push_back(event);
      ++d.made;
    }
  }
  if (d.unused.empty()) {
    return nullptr;
  }
  void* event = d.unused.back();
  d.unused.pop_back();
  return event;
}

// --- Reading ------------------------------------------------------------------------------------

// How late the GPU was at each. A span begins where the host's does: a GPU that waits for the host
// waits for the recording of its event, too. One that is behind does not; compilations are apart.
void place_marks(Spell& spell) {
  std::unordered_map<uint64_t, GpuMark*> begins;
  for (GpuMark& mark : spell.read) {
    // A host that was held up before it had recorded it was not ahead meanwhile.
    mark.lag_ns = mark.gpu_ns + spell.distance_ns - double(mark.recorded_ns);
    if (mark.begins) {
      begins[mark.span] = &mark;
    } else if (const auto found = begins.find(mark.span); found != begins.end()) {
      GpuMark& begin = *found->second;
      const int64_t apart_ns =
          begin.lag_ns > kBehindNs ? mark.apart_ns : mark.host_ns - begin.host_ns - mark.own_ns;
      begin.gpu_ns = std::min(mark.gpu_ns, begin.gpu_ns + double(apart_ns));
    }
  }
}

// On the host, a call begins (1) or ends (-1).
struct Moment {
  int64_t ns;
  int by;
  bool has_all, is_first;
};

// Of the time in which every call under way was timed, and none was its graph's first: what calls
// took on the host, those at once counted once, in parts of what they took in all.
double once_by_host(std::vector<Moment>& moments) {
  std::sort(moments.begin(), moments.end(),
            [](const Moment& a, const Moment& b) { return a.ns < b.ns; });
  int calls = 0, firsts = 0;
  double once_ns = 0, all_ns = 0;
  const Moment* before = nullptr;
  for (const Moment& moment : moments) {
    if (before != nullptr && before->has_all && moment.has_all && calls > 0 && firsts == 0) {
      once_ns += double(moment.ns - before->ns);
      all_ns += calls * double(moment.ns - before->ns);
    }
    before = &moment;
    calls += moment.by;
    firsts += moment.is_first ? moment.by : 0;
  }
  return all_ns > 0 ? once_ns / all_ns : 1;
}

// All events of a spell are there: what they tell goes into the sums. With the mutex.
void add_spell(Gpu& g, GpuDevice& d, Spell& spell) {
  place_marks(spell);
  std::vector<GpuMark>& marks = spell.read;
  std::stable_sort(marks.begin(), marks.end(),
                   [](const GpuMark& a, const GpuMark& b) { return a.gpu_ns < b.gpu_ns; });
  const Set set = spell.set;
  // A certain window may be the only one: how far its parts differ is what is known then.
  const uint64_t draw = set == kCertain ? spell.number : spell.window;
  bool is_thinned = false;  // where calls are left out, nothing tells which are at once
  double captured_ns = 0, union_ns = 0;
  std::unordered_map<uint64_t, const GpuMark*> open;
  size_t calls_open = 0, firsts_open = 0;
  const GpuMark* before = nullptr;
  const GpuMark* last_end = nullptr;  // of a call
  std::vector<Moment> on_host;
  for (GpuMark& mark : marks) {
    if (before != nullptr) {
      const double ns = mark.gpu_ns - before->gpu_ns;
      d.times.seen_ns[set] += ns;
      d.times.behind_ns[set] += mark.lag_ns > kBehindNs ? ns : std::clamp(before->lag_ns, 0.0, ns);
      if (before->has_all && mark.has_all && !is_thinned && calls_open > 0 && firsts_open == 0) {
        captured_ns += double(calls_open) * ns;
        union_ns += ns;
      }
    }
    before = &mark;
    if (mark.begins) {
      is_thinned = is_thinned || (mark.key != 0 && mark.stands_for > 1);
      mark.is_first = mark.key != 0 && !g.calls[mark.key].called;
      firsts_open += mark.is_first;
      open[mark.span] = &mark;
      if (mark.key != 0 && calls_open++ == 0 && last_end != nullptr &&
          mark.first_op_ns != kUnknownOp && mark.stream == last_end->stream) {
        const double ns = mark.gpu_ns - last_end->gpu_ns;
        const double reached = last_end->gpu_ns + spell.distance_ns;
        d.times.gap_ns[set] += ns;
        d.times.idle_ns[set] += mark.first_op_ns == kNoOp
                                    ? ns
                                    : std::clamp(double(mark.first_op_ns) - reached, 0.0, ns);
      }
      continue;
    }
    const auto found = open.find(mark.span);
    if (found == open.end()) {
      continue;
    }
    const GpuMark& begin = *found->second;
    open.erase(found);
    const double host_ns = double(mark.own_ns);
    const double ns = mark.gpu_ns - begin.gpu_ns;
    if (begin.lag_ns > kBehindNs && mark.lag_ns > kBehindNs &&
        (mark.key != 0 || mark.name != nullptr)) {
      d.times.work_ns[set] += begin.stands_for * ns;
      d.times.asking_ns[set] += begin.stands_for * host_ns;
    }
    if (mark.key != 0) {
      d.times.ends[set] += 1;
      d.times.late_ns[set] += std::max(0.0, mark.lag_ns);
      --calls_open;
      firsts_open -= begin.is_first;
      last_end = &mark;
      on_host.push_back({mark.host_ns - mark.own_ns, 1, begin.has_all, begin.is_first});
      on_host.push_back({mark.host_ns, -1, mark.has_all, begin.is_first});
      GpuCalls& calls = g.calls[mark.key];
      if (!std::exchange(calls.called, true) && set == kCertain) {
        calls.first_ns = ns;
        calls.first_host_ns = host_ns;
      } else {
        calls.sums[set].add(draw, 1, ns, ns - host_ns, ns);
        calls.host_ns[set] += host_ns;
      }
    } else if (mark.name != nullptr) {
      if (g.ops.size() < kMaxOpCells || g.ops.count(mark.cell) != 0) {
        GpuOpSum& sum = g.ops[mark.cell];
        sum.name = mark.name;
        sum.n += 1;
        sum.ns += ns;
      }
    }
  }
  if (captured_ns > 0) {
    const double longer_ns = union_ns - once_by_host(on_host) * captured_ns;
    d.at_once[set].add(draw, captured_ns, union_ns, union_ns, longer_ns);
  }
}

// Reads what is there, of `most` events at most; `all`: spells that go on end here. With the mutex.
// True if any is left.
bool poll(Gpu& g, GpuDevice& d, size_t most, bool all) {
  const uint64_t open_window = all ? 0 : open_now.load() / kSets;
  bool is_blocked = false;
  for (auto spell = d.spells.begin(); spell != d.spells.end() && !is_blocked;) {
    while (!spell->waiting.empty() && most-- > 0) {
      GpuMark& mark = spell->waiting.front();
      const int64_t now = now_ns();
      float ms = 0;
      const int result = g.functions.elapsed_ms(&ms, spell->base, mark.event);
      if (result != 0) {
        if (result != kNotReady) {
          gpu_failed(g, result);
          return false;
        }
        g.functions.last_error();
        mark.missed_ns = now;
        is_blocked = true;
        break;
      }
      mark.gpu_ns = 1e6 * double(ms);
      const int64_t earliest = std::max(mark.host_ns, mark.missed_ns);
      spell->distance_ns = std::max(spell->distance_ns, double(earliest) - mark.gpu_ns);
      if (mark.event != spell->base) {
        d.unused.push_back(mark.event);
      }
      spell->read.push_back(mark);
      spell->waiting.pop_front();
    }
    if (!spell->waiting.empty()) {
      break;
    }
    const bool is_last = &*spell == &d.spells.back() && spell->window == open_window;
    if (is_last || spell->open > 0) {
      ++spell;
      continue;
    }
    add_spell(g, d, *spell);
    d.unused.push_back(spell->base);
    spell = d.spells.erase(spell);
  }
  return is_blocked || (!d.spells.empty() && !d.spells.front().waiting.empty());
}

// --- Recording ----------------------------------------------------------------------------------

Spell& spell_for(Gpu& g, GpuDevice& d, uint64_t in_window, Set set, int64_t now) {
  if (!d.spells.empty()) {
    Spell& last = d.spells.back();
    const int64_t age = now - last.since_ns;
    if (last.window == in_window && (age < kSpell || (last.open > 0 && age < kLongestSpell))) {
      return last;
    }
  }
  return d.spells.emplace_back(
      Spell{.number = ++g.spells, .window = in_window, .set = set, .since_ns = now});
}

// Records an event of the current device. False where there is none: a stream that is being
// captured, or an error.
bool record_mark(GpuMark& mark, int32_t device) {
  Gpu& g = gpu();
  const GpuFunctions& f = g.functions;
  int status = 0;
  if (f.current_stream(device, &mark.stream) != 0) {
    return false;
  }
  if (f.is_capturing(mark.stream, &status) != 0) {
    f.last_error();  // the legacy stream, while another is being captured
    return false;
  }
  if (status != 0) {
    return false;
  }
  {
    std::lock_guard<std::mutex> lock(g.mutex);
    mark.event = take_event(g, device);
  }
  if (mark.event == nullptr) {
    return false;
  }
  mark.host_ns = now_ns();
  int error;
  {
    const WithoutInterpreter without;  // it waits where the queue is full
    error = f.record(mark.event, mark.stream);
    mark.recorded_ns = now_ns();
  }
  if (error != 0) {
    std::lock_guard<std::mutex> lock(g.mutex);
    gpu_failed(g, error);
    return false;
  }
  return true;
}

// Is every call under way timed: the window has seen it begin.
bool has_all_calls(uint64_t in_window, int64_t now) {
  return untimed_calls.load(std::memory_order_relaxed) == 0 &&
         open_now.load(std::memory_order_relaxed) / kSets == in_window && now < head_end.load();
}

// A call or an op begins, in a window. Without a key it is an op.
Span begin_span(int32_t device, int64_t key, uint64_t seen_by, int64_t first_op_ns,
                uint32_t stands_for) {
  Gpu& g = gpu();
  const Relaxed relaxed;
  const OnDevice on(device);
  GpuMark mark{.key = key, .begins = true, .stands_for = stands_for, .first_op_ns = first_op_ns};
  if (!on || !record_mark(mark, device)) {
    return {};
  }
  std::lock_guard<std::mutex> lock(g.mutex);
  GpuDevice& d = g.devices[device];
  Spell& spell = spell_for(g, d, seen_by / kSets, set_of(seen_by), mark.host_ns);
  if (spell.base == nullptr) {
    spell.base = mark.event;
  }
  mark.span = ++g.spans;
  mark.has_all = has_all_calls(spell.window, mark.host_ns);
  if (key != 0) {
    g.calls[key].timed = true;
  }
  ++spell.open;
  spell.waiting.push_back(mark);
  const Span span{mark.span, spell.number, device, key};
  poll(g, d, kPolled, false);
  return span;
}

// It ends, after `own_ns` of the host's time. `apart_ns` were compilations; `name` and `cell` are
// of an op that was booked.
void end_span(const Span& span, int64_t own_ns, int64_t apart_ns, const char* name, uint64_t cell) {
  Gpu& g = gpu();
  const Relaxed relaxed;
  const OnDevice on(span.device);
  GpuMark mark{.span = span.number,
               .key = span.key,
               .begins = false,
               .own_ns = own_ns,
               .apart_ns = apart_ns,
               .name = name,
               .cell = cell};
  const bool recorded = g.active && on && record_mark(mark, span.device);
  std::lock_guard<std::mutex> lock(g.mutex);
  GpuDevice& d = g.devices[span.device];
  const auto spell = std::find_if(d.spells.rbegin(), d.spells.rend(),
                                  [&](const Spell& s) { return s.number == span.spell; });
  if (spell == d.spells.rend()) {  // cleared meanwhile
    if (recorded) {
      d.unused.push_back(mark.event);
    }
    return;
  }
  --spell->open;
  if (recorded) {
    mark.has_all = has_all_calls(spell->window, mark.host_ns);
    spell->waiting.push_back(mark);
    poll(g, d, kPolled, false);
  }
}

// The current device, if graphs have been called on it; -1 otherwise.
int32_t op_device() {
  int device = -1;
  Gpu& g = gpu();
  if (g.functions.current_device(&device) != 0 || device < 0 || device >= kMaxDevices ||
      !g.devices[device].used) {
    return -1;
  }
  return device;
}

// The device of a region, -1 where it has none; and whether any of its calls was timed.
std::pair<int32_t, bool> device_of(int64_t key) {
  Gpu& g = gpu();
  std::lock_guard<std::mutex> lock(g.mutex);
  if (size_t(key) >= g.calls.size()) {
    return {-1, false};
  }
  return {int32_t(g.calls[key].device), g.calls[key].timed};
}

// Reads what is there, on a thread that uses no GPU. True if any is left.
bool poll_all(bool all) {
  Gpu& g = gpu();
  if (!g.active) {
    return false;
  }
  bool left = false;
  const Relaxed relaxed;
  std::lock_guard<std::mutex> lock(g.mutex);
  for (int32_t i = 0; i < kMaxDevices && g.active; ++i) {
    if (g.devices[i].spells.empty()) {
      continue;
    }
    if (const OnDevice on(i); on) {
      left |= poll(g, g.devices[i], kMaxEventsMade, all);
    }
  }
  return left;
}

// Forgets what was seen. An event that is on its way can be recorded anew.
void clear_gpu() {
  Gpu& g = gpu();
  g.ops_timed = 0;
  std::lock_guard<std::mutex> lock(g.mutex);
  for (GpuDevice& d : g.devices) {
    for (Spell& spell : d.spells) {
      for (const GpuMark& mark : spell.waiting) {
        if (mark.event != spell.base) {
          d.unused.push_back(mark.event);
        }
      }
      d.unused.push_back(spell.base);
    }
    d.spells.clear();
    d.times = GpuTimeRow();
    d.at_once = {};
  }
  for (GpuCalls& calls : g.calls) {
    calls = {.device = calls.device};
  }
  g.ops.clear();
}

// Forgets the GPUs, too: in a forked child the parent's cannot be used. With the meter's mutex.
void forget_gpus(Meter& m) {
  clear_gpu();
  m.gpus.clear();
  Gpu& g = gpu();
  g.active = false;
  g.error = 0;
  g.calls.clear();
  for (GpuDevice& d : g.devices) {
    d = GpuDevice();
  }
}

}  // namespace

extern "C" {

// From here on, events are recorded for that region's calls, which are on that device.
void op_meter_gpu(int64_t key, int32_t device, const GpuFunctions* functions) {
  Meter& m = meter();
  Gpu& g = gpu();
  std::lock_guard<Mutex> meter_lock(m.mutex);
  std::lock_guard<std::mutex> lock(g.mutex);
  if (device < 0 || device >= kMaxDevices || g.error != 0) {
    return;
  }
  if (size_t(key) >= m.gpus.size()) {
    m.gpus.resize(key + 1, -1);
  }
  m.gpus[key] = device;
  if (size_t(key) >= g.calls.size()) {
    g.calls.resize(key + 1);
  }
  g.calls[key].device = device;
  g.devices[device].used = true;
  if (!g.active) {
    g.functions = *functions;
    g.active = true;
  }
}

void op_meter_gpu_forget() {
  Meter& m = meter();
  const std::lock_guard<Mutex> lock(m.mutex);
  forget_gpus(m);
}

// CUDA's error after which nothing was recorded any more; 0: none.
int32_t op_meter_gpu_error() {
  std::lock_guard<std::mutex> lock(gpu().mutex);
  return gpu().error;
}

}  // extern "C"
