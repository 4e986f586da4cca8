// What the op meter keeps: of marks and gaps, of the ops in them, of threads and of windows.

#pragma once

#include <ATen/record_function.h>
#include <c10/util/StringUtil.h>
#include <c10/util/Type.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <ctime>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

// Of the Python that has loaded this; its headers would tie the library to one version of it.
using PyObject = struct _object;
extern "C" {
int PyGILState_Ensure();
void PyGILState_Release(int state);
int PyGILState_Check();
void* PyEval_SaveThread();
void PyEval_RestoreThread(void* state);
int PyOS_InterruptOccurred();
int PyErr_SetInterruptEx(int signal);
PyObject* PyErr_Occurred();
void PyErr_Clear();
void Py_IncRef(PyObject* object);
void Py_DecRef(PyObject* object);
PyObject* PyEval_GetFrame();  // borrowed; the others' results are not
PyObject* PyFrame_GetBack(PyObject* frame);
PyObject* PyFrame_GetCode(PyObject* frame);
int PyFrame_GetLasti(PyObject* frame);
PyObject* PyObject_CallNoArgs(PyObject* function);
long long PyLong_AsLongLong(PyObject* number);
void* PyThreadState_Get();
}

namespace at {
TORCH_API bool in_parallel_region();  // ATen/Parallel.h, which takes seconds more to compile
}

namespace {

constexpr size_t kCacheLine = 64;
constexpr size_t kMaxCells = 65536;
constexpr size_t kMaxTurns = kMaxCells / 4 * 3;  // the rest is for names that are new
constexpr uint32_t kMaxOrdinals = 512;
constexpr uint32_t kFewOrdinals = 4;  // where a gap is not seen from its beginning
constexpr uint32_t kNoCell = ~0u;
constexpr uint32_t kHeard = 8;  // events inside an op: most have one to three
constexpr size_t kMaxMarks = 65536;
constexpr size_t kMaxPositions = 4096;  // in the program's loops
constexpr int kHistory = 8;             // marks, by which such positions are told apart
constexpr int kMaxEvents = 64;
constexpr int kOctaves = 48;  // of a gap's length in nanoseconds
constexpr int kLong = 27;     // gaps of this octave, 0.13 s, and longer are seen in slices
// A gap that has gone on for so long, 8 ms, and for so many octaves longer than others after its
// mark may be none like these: a window is opened for it, unless so many that are as long are
// known.
constexpr int kUnlike = 23, kFar = 4;
// Stages of such gaps: the first lasts for 2 ms, and two are an octave from there on.
constexpr size_t kStages = 32;
constexpr int kFirstStage = 21;
constexpr double kFewKnown = 8;
constexpr double kEnded = 0.5;  // of a gap's ops, for those before to be about known
// What PyTorch takes for an event that is in no op, as `work.py` has it.
constexpr int64_t kEventNs = 150;
// The first op of a cell is sampled, and the n-th with a chance of 1 in `kThinning * n`, for which
// it stands for so many: enough where it is always on the same line, as most are.
constexpr double kThinning = 2;
constexpr double kOfSeveral = 16;  // where it has been on several: at least one in so many
constexpr int kAsks = 16;          // how often a kind of gap that has no line of an op asks for one
constexpr uint64_t kEventsAtOnce = 256;  // of a thread's work, until all know of it
constexpr int64_t kNever = INT64_MAX;
// What seeing an op takes, as far as it lengthens a gap: our own part and PyTorch's. Ours is timed,
// of one op in `kMeasured`. So are two events that nobody made but we, after one op in
// `kEventsMeasured`: the first finds of PyTorch's paths what the op has left in the caches, the
// second all of them; and after a node, a name put together as its own was. PyTorch's part is so
// many times as long: of that for a node's name, of the first event for an op's own, and of the
// second for one inside an op and to silence a thread, half of which is inside. Fitted to 23 loops
// of ops with a window and without, on a CPU and on the host of an H200; the name's, to five on a
// CPU.
constexpr double kNameShare = 1.1, kOpShare = 1.85, kInnerShare = 1.7, kSilenceShare = 13;
constexpr double kSilenceInside = 0.5;
// So long what is seen of a gap that was under way when a window opened is left out: until all of
// PyTorch's paths for events are in the caches, the first ops take 5 to 10 us longer each.
constexpr int64_t kLeadNs = 400000;
constexpr double kMostCost = 0.75;  // of a window: what lasts on after its end has more
constexpr double kMostWeight = 10;  // against the mean: what one window saw is one window's
constexpr uint32_t kMeasured = 16, kAllMeasured = 128;  // of a window, the first so many all are
// Were it more, they'd be in the caches by that. In a window that lasts on, as in `always`, so many
// are measured, and then none for a while.
constexpr uint32_t kEventsMeasured = 32, kMeasuredInARow = 64, kNotMeasured = 32768;
constexpr double kColdest = 3;              // to the second: what is longer, something else held up
constexpr double kLately = 0.1;             // so much of a mean is the last measured
constexpr int64_t kLongestOpCostNs = 5000;  // what takes longer was held up
constexpr int64_t kLongestSampleNs = 50000;  // what takes longer was held up
constexpr char kNodeType[] = "N5torch8autograd14AccumulateGradE";
constexpr char kNodePrefix[] = "autograd::engine::evaluate_function: ";
constexpr size_t kNodePrefixLength = sizeof(kNodePrefix) - 1;

int64_t now_ns() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return int64_t(t.tv_sec) * 1000000000 + t.tv_nsec;
}

// The stage of a gap that has gone on for so long, and how long it has when one begins.
size_t stage_of(int64_t ns) {
  if (ns < int64_t(1) << kFirstStage) {
    return 0;
  }
  const int octave = 63 - __builtin_clzll(ns);
  const bool is_second = double(ns) >= M_SQRT2 * double(int64_t(1) << octave);
  return std::min(kStages - 1, size_t(1 + 2 * (octave - kFirstStage) + is_second));
}
double stage_begin(size_t stage) {
  if (stage == kStages) {
    return HUGE_VAL;
  }
  return stage == 0 ? 0 : std::exp2(kFirstStage + double(stage - 1) / 2);
}

// A mutex of one word: where nobody else has it, it is taken and given back with no call.
class Mutex {
 public:
  void lock() {
    uint32_t unlocked = kFree;
    if (!state_.compare_exchange_strong(unlocked, kTaken, std::memory_order_acquire)) {
      wait();
    }
  }
  void unlock() {
    if (state_.exchange(kFree, std::memory_order_release) == kAwaited) {
      syscall(SYS_futex, &state_, FUTEX_WAKE_PRIVATE, 1, nullptr, nullptr, 0);
    }
  }

 private:
  enum : uint32_t { kFree, kTaken, kAwaited };

  [[gnu::noinline, gnu::cold]] void wait() {
    while (state_.exchange(kAwaited, std::memory_order_acquire) != kFree) {
      syscall(SYS_futex, &state_, FUTEX_WAIT_PRIVATE, kAwaited, nullptr, nullptr, 0);
    }
  }

  std::atomic<uint32_t> state_{kFree};
};
static_assert(sizeof(Mutex) == sizeof(uint32_t));

bool starts_with(const char* text, const char* prefix) {
  return std::strncmp(text, prefix, std::strlen(prefix)) == 0;
}

// In which windows something was seen: in those after compilations and in `always`, whose gaps
// stand for themselves, or in those that chance placed, whose gaps stand for the others too.
enum Set : int32_t { kCertain, kRandom, kSets };

// What an op came after that begins a gap. What is not known is nullptr.
constexpr char kGapBegin[] = "";
constexpr int32_t kNoLine = -1, kSeveralLines = -2;

// Of PyTorch, called from Python: by number. Of more ops than that calls are not told apart.
constexpr uint32_t kMaxOpsOfCall = 8;
constexpr uint32_t kNoFunction = UINT32_MAX, kUnknownFunction = UINT32_MAX - 1;

// The ops of one name after one mark, told apart by whether they are the gap's first of that name,
// its second, ..., and by which op came before them: mostly, each of these is always on the same
// line of the program. A cache line each, in the order in which they first ran: what else a step
// does has mostly driven them out of the cache.
struct alignas(kCacheLine) Cell {
  const char* name;    // interned
  const char* before;  // the name of the op before it
  int32_t mark;
  uint32_t slot;  // among the mark's cells
  int64_t count = 0;
  uint32_t first;                // the cell with that name's first op after the mark
  uint32_t successor = kNoCell;  // the cell that came after it last time, on any thread
  uint64_t pass = 0;             // of the gap, by the thread that was here last
  uint16_t ordinal;
  uint16_t next = 0;       // of a first one: the ordinal of its name's next op in that pass
  int32_t line = kNoLine;  // that was sampled
  uint32_t function = kUnknownFunction;  // that called it last
};
static_assert(sizeof(Cell) == kCacheLine || sizeof(Cell) == 2 * kCacheLine);

struct CellSum {
  double count = 0, ns = 0;
};

// Sums over the samples of one cell on one line. Each stands for so many ops: its weight.
struct Sampled {
  double weight = 0, weighted_ns = 0, weight2 = 0;

  void add(const Sampled& other, double times = 1) {
    weight += times * other.weight;
    weighted_ns += times * other.weighted_ns;
    weight2 += times * times * other.weight2;
  }
};
// By slot and the line's number.
using Samples = std::unordered_map<uint64_t, Sampled>;

// Ops that were seen in one gap, or in several, by their cells' slots.
struct Ops {
  double ops = 0, op_ns = 0;
  std::vector<CellSum> cells;
  std::vector<uint32_t> touched;
  Samples samples;

  void add(uint32_t slot, double count, double ns) {
    if (slot >= cells.size()) {
      cells.resize(slot + 1);
    }
    CellSum& cell = cells[slot];
    if (cell.count == 0) {
      touched.push_back(slot);
    }
    cell.count += count;
    cell.ns += ns;
  }

  void add(const Ops& other, double times = 1) {
    ops += times * other.ops;
    op_ns += times * other.op_ns;
    for (const uint32_t slot : other.touched) {
      add(slot, times * other.cells[slot].count, times * other.cells[slot].ns);
    }
    for (const auto& [place, sums] : other.samples) {
      samples[place].add(sums, times);
    }
  }

  void clear() {
    for (const uint32_t slot : touched) {
      cells[slot] = CellSum();
    }
    touched.clear();
    if (!samples.empty()) {  // it would go through all of its buckets
      samples.clear();
    }
    ops = op_ns = 0;
  }
};

// As it is handed out: what windows saw of one kind of gap. Sums over the gaps, and over the
// windows of what each saw, for means and for how far windows differ. `n` is of gaps, or of slices'
// seconds. In all of them each gap counts as often as it weighs, and they weigh 1 on average;
// `weight`: as often as that in sums over several kinds, against the mean of chance's windows.
struct Seen {
  struct Squares {
    double n2 = 0, ops2 = 0, ops_n = 0, op_ns2 = 0, op_ns_n = 0;

    void add(double n, double ops, double op_ns, double times = 1) {
      n2 += times * n * n;
      ops2 += times * ops * ops;
      ops_n += times * ops * n;
      op_ns2 += times * op_ns * op_ns;
      op_ns_n += times * op_ns * n;
    }
  };
  double n = 0, ns = 0, ops = 0, op_ns = 0;
  double windows = 0;
  Squares squares;
  double ns2 = 0, op_ns_ns = 0;           // the same of the gaps' time
  double each_ops2 = 0, each_op_ns2 = 0;  // over the gaps, and not over the windows
  double pairs = 0;                       // of windows, one after the other
  Squares apart;                          // half of the squares of by how much these differ
  double weight = 0;
};

struct Sums {
  Seen seen;
  uint64_t window = 0;
  struct OneWindow {
    double n = 0, ns = 0, ops = 0, op_ns = 0;
  };
  OneWindow now, last;  // that one, not yet in the sums of squares, and the one before it
  double gaps = 0;      // however much they weigh; or seconds

  void add(uint64_t in_window, double count, double ns, double new_ops, double new_op_ns,
           double weight = 1) {
    if (in_window != window) {
      close();
      window = in_window;
    }
    gaps += count;
    seen.n += weight * count;
    seen.ns += weight * ns;
    seen.ops += weight * new_ops;
    seen.op_ns += weight * new_op_ns;
    now.n += weight * count;
    now.ns += weight * ns;
    now.ops += weight * new_ops;
    now.op_ns += weight * new_op_ns;
  }

  void add_gap(uint64_t in_window, double ns, double new_ops, double new_op_ns) {
    add(in_window, 1, ns, new_ops, new_op_ns);
    seen.each_ops2 += new_ops * new_ops;
    seen.each_op_ns2 += new_op_ns * new_op_ns;
  }

  void close() {
    if (now.n > 0 || now.ops > 0) {
      seen.squares.add(now.n, now.ops, now.op_ns);
      seen.ns2 += now.ns * now.ns;
      seen.op_ns_ns += now.op_ns * now.ns;
      if (seen.windows > 0) {
        seen.pairs += 1;
        seen.apart.add(now.n - last.n, now.ops - last.ops, now.op_ns - last.op_ns, 0.5);
      }
      seen.windows += 1;
      last = now;
    }
    now = {};
  }

  void add(Sums& other) {
    close();
    other.close();
    gaps += other.gaps;
    double* into = &seen.n;
    const double* from = &other.seen.n;
    for (size_t i = 0; i < sizeof(Seen) / sizeof(double); ++i) {
      into[i] += from[i];
    }
  }

  // What one window has seen, each of whose gaps weighs as much.
  void add_window(const Sums& one, double weight) {
    add(one.window, one.gaps, one.seen.ns, one.seen.ops, one.seen.op_ns, weight);
    seen.each_ops2 += weight * one.seen.each_ops2;
    seen.each_op_ns2 += weight * one.seen.each_op_ns2;
  }

  // What each gap's weight is to be multiplied by.
  double scale() const { return seen.n > 0 ? gaps / seen.n : 1; }

  Seen handed_out(double mean_weight) {
    close();
    const double once = scale(), twice = once * once;
    Seen out = seen;
    out.n = gaps;
    for (double* sum : {&out.ns, &out.ops, &out.op_ns, &out.each_ops2, &out.each_op_ns2}) {
      *sum *= once;
    }
    for (Seen::Squares* squares : {&out.squares, &out.apart}) {
      for (double* sum :
           {&squares->n2, &squares->ops2, &squares->ops_n, &squares->op_ns2, &squares->op_ns_n}) {
        *sum *= twice;
      }
    }
    out.ns2 *= twice;
    out.op_ns_ns *= twice;
    out.weight = 1 / (once * mean_weight);
    return out;
  }
};

struct Tally {
  Sums sums;
  Ops ops;

  void add(Tally& other) {
    sums.add(other.sums);
    ops.add(other.ops);
  }
  // What one window has seen.
  void add_window(const Tally& one, double weight) {
    sums.add_window(one.sums, weight);
    ops.add(one.ops, weight);
  }
  void clear() {
    sums = Sums();
    ops.clear();
  }
};

struct Observed {
  std::array<Tally, kSets> whole, slices;
  // Of the last of chance's windows: what it weighs comes later.
  std::unique_ptr<Tally> unweighed, unweighed_slices;
  Sums looked;  // gaps of which certain windows saw slices: all of each, as these tell
  Sums met;     // of these, those that had ops when they were first looked at
  Sums ended;   // of these, those that a window saw to their end, and of which most ops were seen
  // Of gaps that may be unlike others, by how long they had gone on: what windows saw of all of
  // them. Each gap is as a window.
  std::unique_ptr<std::array<Sums, kStages>> stages;
};

// Of one length, exactly: how many there were and how long they took, on the main thread and on
// others.
struct Population {
  int64_t n[2] = {}, ns[2] = {};
  int64_t cost_ns = 0;  // of all threads' `ns`: ours
};

struct Position;

// Gaps of one octave.
struct Length {
  int octave;
  Population population = {};
  std::unique_ptr<Observed> observed = nullptr;

  Observed& seen() {
    if (!observed) {
      observed = std::make_unique<Observed>();
    }
    return *observed;
  }
};

// All gaps from one mark to another, in one position in the program's loop, by the octaves of
// their lengths. What each of them needs comes first.
struct alignas(kCacheLine) Edge {
  int64_t to = 0;
  Position* after = nullptr;  // where it went on last time
  Length usual{-1};           // the length of its first one
  std::vector<Length> others = {};
  Edge* next = nullptr;
  int64_t number = 0;
  int first_octave = -1;         // of the very first gap, if a certain window saw it
  std::unique_ptr<Tally> first;  // that gap, whose ops may be none like the others'
  Sums by_chance;                // in random windows: whole gaps of all lengths, long ones apart

  Length& length(int octave) {
    if (usual.octave == octave) {
      return usual;
    }
    return other_length(octave);
  }

  [[gnu::noinline]] Length& other_length(int octave) {
    if (usual.octave < 0) {
      usual.octave = octave;
      return usual;
    }
    for (Length& other : others) {
      if (other.octave == octave) {
        return other;
      }
    }
    return others.emplace_back(Length{octave});
  }
};

// Where a gap begins. `graph` is the direction whose call ended last, `event` what happened since.
struct Mark {
  int32_t number;
  int64_t graph;
  int32_t event;                     // 0: the call's end itself
  bool in_data;                      // a DataLoader is at work
  std::vector<uint32_t> cells = {};  // by slot, their numbers
};

using History = std::array<int32_t, kHistory>;  // numbers of marks, the last one first

// A mark in the program's loop: one that comes several times in a turn has as many.
struct alignas(kCacheLine) Position {
  Mark* mark;
  Edge* last = nullptr;
  Edge* edges = nullptr;
  History history;
  std::vector<bool> wanted = {};  // by slot: samples, for kinds of gap that have none
};

struct Region {
  int64_t calls = 0, nested = 0, ns = 0, longest_ns = 0;
};

constexpr int kMaxDevices = 64;

// Calls on one GPU, on several threads: how many are under way, since when, and what all took
// together beyond the time in which any was.
struct AtOnce {
  int64_t calls = 0, since = 0, more_ns = 0;

  void change(int64_t by, int64_t now) {
    more_ns += calls > 1 ? (calls - 1) * std::max<int64_t>(0, now - since) : 0;
    since = std::max(since, now);
    calls = std::max<int64_t>(0, calls + by);
  }
};

// What a thread's time went to, gaps apart.
struct Spent {
  int64_t captured_ns = 0, compile_ns = 0;
};

// Marks that a thread has seen while no window was open, to be booked later: one by one, each would
// find out of the cache what booking needs, which takes longer than to book it.
class Notes {
 public:
  struct Note {
    int64_t at_ns;
    int64_t ns;  // of the call that ended; negative: one begins
    int64_t key;
  };

  bool has_room() const {
    return written_.load(std::memory_order_relaxed) - booked_.load(std::memory_order_acquire) <
           kMost;
  }
  // By the thread alone whose line it is of.
  void add(const Note& note) {
    const uint32_t at = written_.load(std::memory_order_relaxed);
    notes_[at % kMost] = note;
    written_.store(at + 1, std::memory_order_release);
  }
  // When the last one was; 0 where there was none. On any thread: a guess, as its thread goes on.
  int64_t last_ns() const {
    const uint32_t count = written_.load(std::memory_order_acquire);
    return count == 0 ? 0 : __atomic_load_n(&notes_[(count - 1) % kMost].at_ns, __ATOMIC_RELAXED);
  }
  // With the meter's mutex. When the next one was that is not booked; `kNever` where there is none.
  int64_t next_ns() const {
    const uint32_t at = booked_.load(std::memory_order_relaxed);
    return at == written_.load(std::memory_order_acquire) ? kNever : notes_[at % kMost].at_ns;
  }
  // With the meter's mutex. False where there is no more until that moment.
  bool take_until(int64_t until, Note& note) {
    const uint32_t at = booked_.load(std::memory_order_relaxed);
    if (at == written_.load(std::memory_order_acquire) || notes_[at % kMost].at_ns > until) {
      return false;
    }
    note = notes_[at % kMost];
    booked_.store(at + 1, std::memory_order_release);
    return true;
  }

 private:
  static constexpr uint32_t kMost = 128;
  std::atomic<uint32_t> written_{0}, booked_{0};
  std::array<Note, kMost> notes_;
};

// Less of a gap, as where it ends when a window has just opened, tells nothing of the rest. Where
// ops come thick and fast, three quarters of a slice go into seeing them.
constexpr double kTellsNs = 5e5;

// What windows saw of a gap, by how long it had gone on: by half octaves, in its own time.
struct Stages {
  struct Stage {
    double ns = 0, ops = 0, op_ns = 0;
  };
  std::array<Stage, kStages> stages = {};
  size_t used = 0;  // so many of them

  Stage& at(size_t number) {
    used = std::max(used, number + 1);
    return stages[number];
  }
  void see(double from_ns, double until_ns) {
    for (size_t i = stage_of(int64_t(from_ns)); i < kStages && stage_begin(i) < until_ns; ++i) {
      const double end_ns = std::min(until_ns, stage_begin(i + 1));
      at(i).ns += std::max(0.0, end_ns - std::max(from_ns, stage_begin(i)));
    }
  }
  // All of a gap that lasted for so long: what was not seen is like what was seen next to it. And
  // whether it had ops when it was first seen.
  std::pair<Stage, bool> whole(double own_ns) const {
    Stage whole, part;  // the part: stages in a row, of which enough was seen
    double from = 0, end = 0;
    bool had_ops = false;
    const auto stands_until = [&](double until) {
      had_ops = from == 0 ? part.ops > 0 : had_ops;
      const double times = (until - from) / part.ns;
      whole.ns += times * part.ns;
      whole.ops += times * part.ops;
      whole.op_ns += times * part.op_ns;
      part = Stage();
      from = until;
    };
    for (size_t i = 0; i < used && stage_begin(i) < own_ns; ++i) {
      if (stages[i].ns <= 0) {
        continue;
      }
      if (part.ns >= kTellsNs || (part.ns > 0 && end < stage_begin(i))) {
        stands_until((end + stage_begin(i)) / 2);
      }
      part.ns += stages[i].ns;
      part.ops += stages[i].ops;
      part.op_ns += stages[i].op_ns;
      end = std::min(own_ns, stage_begin(i + 1));
    }
    if (part.ns > 0) {
      stands_until(own_ns);
    }
    return {whole, had_ops};
  }
  void clear() {
    std::fill_n(stages.begin(), used, Stage());
    used = 0;
  }
};

// What one thread runs, from mark to mark. Threads of the autograd engine work for the thread that
// waits for them, and write into its line.
struct alignas(kCacheLine) Line {
  Notes* notes = nullptr;
  Position* from = nullptr;
  Position* position = nullptr;  // of its last mark
  Edge* edge = nullptr;          // of its last gap
  int64_t graph = 0;             // whose call ended last
  int64_t gap_start = 0;
  int64_t apart_ns = 0;   // of the gap under way: compilations
  int64_t collected = 0;  // `collected_ns` when it began, and what was collected in that time
  uint64_t pass = 0;      // of that gap
  bool main = false;
  bool watched = false;   // is the gap seen whole
  bool was_seen = false;  // has a window seen any of it
  bool quiet_compiles = false;
  uint32_t quiet = 0;  // threads that are quiet on it
  uint32_t in_data = 0;
  Spent spent;
  int64_t cost_ns = 0;          // of the gap: ours, before the window's end
  int64_t tail_cost_ns = 0;     // and after it
  int64_t first_op = 0;         // of it: when it began
  int64_t quiet_since = 0;      // what is not yet in `apart_ns`
  int64_t quiet_collected = 0;  // `collected_ns` at that time
  int64_t seen_from = 0;        // since when it is seen, if it is
  int64_t seen_apart = 0;       // `apart_ns` at that time
  int64_t seen_cost = 0;        // `cost_ns` at that time
  bool leads_in = false;        // has no op begun since that time
  bool timed = false;           // by the GPU: the last call
  bool in_call = false;
  bool untimed_call = false;       // is it under way since before the window opened
  std::array<Ops, kSets> head;     // of the gap: what began before a window's end
  std::array<Sums, kSets> slices;  // of it; of chance's, of the last window, which was not weighed
  Tally weighed;                   // of it: what earlier windows of chance saw
  double weight = 0;               // of the last of these
  Stages stages;                   // of it
  Ops tail;                        // of a watched one: the rest

  // What it was is forgotten, but for its notes.
  void start_over() { *this = Line{.notes = notes}; }
};

struct alignas(kCacheLine) Meter {
  Mutex mutex;                  // for all that ops are booked to
  Line* main = nullptr;         // the main thread's
  std::vector<Mark*> by_graph;  // where a region has just ended
  std::vector<Region> regions;  // by direction
  std::vector<bool> crowded;    // by direction: has one of its calls silenced its thread
  std::unordered_set<std::string, std::hash<std::string>, std::equal_to<>> names;
  std::vector<Cell> cells;
  struct Key {
    const char* name;  // interned
    int32_t mark;
    uint32_t ordinal;
    const char* before;  // nullptr: of what was met first
    bool operator==(const Key& other) const = default;
  };
  struct KeyHash {
    size_t operator()(const Key& key) const {
      const std::hash<const void*> hash;
      return ((hash(key.name) * 1000003u ^ hash(key.before)) * 1000003u ^ size_t(key.mark)) *
                 1000003u ^
             key.ordinal;
    }
  };
  std::unordered_map<Key, uint32_t, KeyHash> index;  // in `cells`
  std::array<Ops, kSets> loose;                      // of threads that have no marks
  std::array<Sums, kSets> loose_sums;                // of them, by window; its time is that
  std::unordered_map<const char*, std::unordered_set<uint32_t>> callers;  // functions, by op
  int64_t lost = 0;
  uint64_t clears = 0;
  std::vector<const char*> events{""};  // by number; interned

  struct Unweighed {
    Edge* edge;  // nullptr: slices
    Observed* observed;
    bool is_long;
  };
  std::vector<Unweighed> unweighed;

  std::deque<Mark> marks;
  struct HistoryHash {
    size_t operator()(const History& history) const {
      size_t hash = 0;
      for (const int32_t mark : history) {
        hash = (hash ^ size_t(mark)) * 0x9E3779B97F4A7C15u;
      }
      return hash ^ hash >> 32;
    }
  };
  std::deque<Position> positions;
  std::unordered_map<History, Position*, HistoryHash> by_history;
  std::unordered_map<uint64_t, Mark*> by_event;  // after events
  std::vector<Line*> lines;
  std::vector<Line*> unused;  // of threads that are no more
  Spent others_before;        // of threads that are no more

  std::vector<int32_t> gpus;  // by region: its device, -1 where it has none
  std::array<AtOnce, kMaxDevices> at_once;

  // Called for a sampled op: its name. The number of its line; -1 where Ctrl-C came meanwhile:
  // Python would lose the exception of a callback.
  int64_t (*sampler)(const char*) = nullptr;
  bool sample_each = false;
};

// Never destroyed: events may end while the process does.
union Forever {
  Meter meter;
  Forever() : meter() {}
  ~Forever() {}
};
Forever forever;

Meter& meter() { return forever.meter; }

// Looks names up without making a string of each.
const char* intern(Meter& m, std::string_view name) { return m.names.emplace(name).first->c_str(); }

// Chance's windows see less of the time where ops come thick, as these cost more. Each of their
// gaps weighs as much as its window stands for of the run, by how long that lasted.
struct Chance {
  double stood_for_ns = 0, open_ns = 0;
  double window_ns = 0;             // of one that was not weighed yet; 0: there is none
  double cost_ns = 0;               // of it: what went into seeing ops, in which there were no gaps
  double all_ns = 0, spent_ns = 0;  // of all: how long they lasted, and what that has cost

  double usual_cost_ns(double ns) const { return all_ns > 0 ? spent_ns / all_ns * ns : 0; }

  // 0: it is not known for how much the window stands.
  double weigh(double stands_for_ns) {
    const double all_ns = std::exchange(window_ns, 0);
    const double own_ns = all_ns - std::min(std::exchange(cost_ns, 0), kMostCost * all_ns);
    if (stands_for_ns <= 0) {
      return mean();
    }
    open_ns += own_ns;
    const double most_ns = kMostWeight * own_ns * (stood_for_ns + stands_for_ns) / open_ns;
    stands_for_ns = std::min(stands_for_ns, most_ns);
    stood_for_ns += stands_for_ns;
    return stands_for_ns / own_ns;
  }
  double mean() const { return open_ns > 0 ? stood_for_ns / open_ns : 1; }
};

// What each mark looks at, in one cache line: between two calls of a graph a program needs the
// caches for itself, and each line costs a call more than what is done with it.
struct alignas(kCacheLine) Shared {
  std::atomic<uint64_t> open_now{0};  // the window that is open, as `seen_as` has it; 0: none
  std::atomic<int64_t> head_end{0};   // gaps and ops that begin later are not seen
  std::atomic<int64_t> watching{0};   // gaps that are seen whole and go on
  // Time of garbage collections of the whole heap, on any thread: they hold up all that need the
  // interpreter, and which op or gap they meet is chance. They are none of its time, for it may
  // stand for others. Calls, which are all timed, have them.
  std::atomic<int64_t> collected_ns{0};
  std::atomic<uint64_t> passes{1};
  std::atomic<Line*> last_line{nullptr};  // of a thread that is not the engine's
  uint64_t marks_seen = 0;
};
Shared shared;
std::atomic<uint64_t>& open_now = shared.open_now;
std::atomic<int64_t>& head_end = shared.head_end;
std::atomic<int64_t>& watching = shared.watching;
std::atomic<int64_t>& collected_ns = shared.collected_ns;
std::atomic<uint64_t>& passes = shared.passes;
std::atomic<Line*>& last_line = shared.last_line;
uint64_t& marks_seen = shared.marks_seen;
std::atomic<int64_t> untimed_calls{0};  // under way since before the window opened
Set window_set = kCertain;
uint64_t window = 0;
Chance chance;
std::atomic<uint64_t> ends_with{0};  // the window does, with that gap; 0: with none
int64_t opened_ns = 0;
std::atomic<int64_t> lead_end{0};  // of gaps that were under way when the window opened

// What it has seen of threads without marks until then, into the sums of its set. With the mutex.
void add_loose(const Meter& m, Sums& sums, int64_t until) {
  const Ops& ops = m.loose[window_set];
  const double ns = double(std::max<int64_t>(0, until - opened_ns));
  sums.add(window, 1e-9 * ns, ns, ops.ops - sums.seen.ops, ops.op_ns - sums.seen.op_ns);
}

void clear_loose(Meter& m) {
  m.loose.fill(Ops());
  m.loose_sums.fill(Sums());
}

std::atomic<uint64_t> wakes{0};
at::CallbackHandle handle = at::INVALID_CALLBACK_HANDLE;
at::CallbackHandle events_handle = at::INVALID_CALLBACK_HANDLE;
// Somebody else's callbacks were there before ours.
std::atomic<bool> has_company{false};
std::mutex window_mutex;  // for opening and closing; taken before the meter's
// Never destroyed: that would wait for a thread that waits for it while the process ends.
std::condition_variable& window_changed = *new std::condition_variable();

// A window by its number and set. From 1 on.
uint64_t seen_as(uint64_t number, Set set) { return number * kSets + set; }
Set set_of(uint64_t seen_by) { return Set(seen_by % kSets); }

// What windows cost: the callback's calls; those of them that are ops, and the time that these took
// us; samples taken, and the time that they took; how often a thread was silenced; how long windows
// were open. And how much of a program's loop has been seen: marks so far, the one at which a kind
// of gap was new, and the one since which the loop is looked for. What windows have cost that were
// opened for gaps unlike others.
struct Work {
  uint64_t events = 0, ops = 0;
  int64_t op_ns = 0;  // beyond `kEventNs` for each event
  uint64_t samples = 0, sample_ns = 0, silences = 0, open_ns = 0;
  uint64_t marks = 0, novel = 0, first = 0;
  uint64_t unlike_ns = 0;
};

std::mutex work_mutex;
Work work;
uint64_t novel_mark = 0, first_mark = 0;
int64_t edges_made = 0;

// So many, in a window.
struct InWindow {
  uint64_t window = 0;  // as in `open_now`
  uint32_t n = 0;
};

// What is between two of the GPU's events.
struct Span {
  uint64_t number = 0;  // 0: none
  uint64_t spell = 0;
  int32_t device = 0;
  int64_t key = 0;  // the region's; 0 of an op
};

// A call from Python of one of PyTorch's functions: which ops it has, in their order.
struct CallUnderWay {
  uint32_t function = kNoFunction;
  uint32_t size = 0;
  uint64_t ops = 0;
  std::array<const char*, kMaxOpsOfCall> names{};  // of the first of them
};

// What a call of a graph needs comes first, close together.
struct alignas(kCacheLine) Thread {
  uint32_t regions = 0;
  uint32_t quiet = 0;     // compiling, or sampling
  uint32_t inner = 0;     // events inside the op or region under way
  uint32_t op_depth = 0;  // the depth of the op under way; 0: none
  bool silenced = false;
  bool has_work = false;   // that is not yet in the sum of all threads
  int8_t engine = -1;      // is it a thread of the autograd engine; -1: not known yet
  int8_t main = -1;        // is it the main thread; -1: not known yet
  Line* line = nullptr;    // its own
  Notes* notes = nullptr;  // that one's
  int64_t region_start = 0;
  int64_t region_in_op = 0;     // time of regions inside the op under way
  Span call = {}, op = {};      // that the GPU times
  uint32_t depth = 0;           // events under way that we saw start
  bool is_compilation = false;  // what is under way as an op
  uint64_t seen_by = 0;         // the window before whose end the op began; 0: none
  int64_t lead_end = 0;         // of that window
  Work work;
  int64_t op_start = 0;
  int64_t op_collected = 0;  // `collected_ns` when the op under way began
  int64_t quiet_start = 0;
  Line* quiet_line = nullptr;
  uint32_t until_mark_measured = 1;  // of those that a window sees
  double mark_ns = 500;              // what these have cost lately
  uint32_t until_measured = 1;       // ops
  uint32_t all_measured = 0;         // so many of the next ones
  uint64_t measured_in = 0;          // the window that it is of
  bool measures = false;             // our part of what the op under way costs
  int64_t measured_ns = 0;           // of it, so far
  uint32_t until_events = 1;         // ops, until events are measured after one
  uint32_t events_in_a_row = 0;      // measured
  double own_ns = 300;               // of ops: our part, lately
  double event_ns = 150;             // an event of PyTorch's after an op
  double warm_event_ns = 100;        // and right after another
  double name_ns = 1500;             // to put a node's name together
  uint32_t last_cell = kNoCell;      // where this thread's last op was booked
  uint32_t random = 2463534242u;
  int64_t quiet_ns = 0;       // so far
  uint32_t until_timed = 1;   // ops, by the GPU
  InWindow calls_in, ops_in;  // that the GPU has timed, or could have
  int64_t call_quiet = 0;     // `quiet_ns` when that call began
  int64_t op_gpu_ns = 0;      // what that op's events have cost
  CallUnderWay from_python;   // that a window sees
  uint64_t called_in = 0;     // the window that saw the last of these begin
};

// xorshift.
uint32_t next_random(Thread& t) {
  t.random ^= t.random << 13;
  t.random ^= t.random >> 17;
  t.random ^= t.random << 5;
  return t.random;
}

thread_local Thread own_state;

// Not inline: the compiler would ask for its address anew after each call that it makes.
[[gnu::noinline]] Thread& this_thread() { return own_state; }

bool is_engine(Thread& t) {
  if (t.engine < 0) {
    char name[32] = "";
    pthread_getname_np(pthread_self(), name, sizeof(name));
    t.engine = starts_with(name, "pt_autograd");
  }
  return t.engine != 0;
}

bool is_main(Thread& t) {
  if (t.main < 0) {
    t.main = syscall(SYS_gettid) == getpid();
  }
  return t.main != 0;
}

void has_line(Thread& t, Line* line) {
  t.line = line;
  t.notes = line->notes;
}

// Whose time this thread's is; nullptr where it has had no mark.
Line* line_of(Thread& t) {
  if (is_engine(t)) {
    return last_line.load(std::memory_order_relaxed);
  }
  if (t.line == nullptr && meter().main != nullptr && is_main(t)) {
    has_line(t, meter().main);
  }
  return t.line;
}

}  // namespace
