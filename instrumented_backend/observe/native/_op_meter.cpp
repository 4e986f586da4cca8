// The op meter's native part: where a program's time goes, and which ops it runs outside compiled
// regions.
//
// Marks are points of a thread's run that cost next to nothing to see: a region begins or ends, an
// optimizer steps, a DataLoader is asked for data. What runs from one mark to the next is a gap.
// All marks are seen, so that the number and the time of the gaps of each kind (from which mark to
// which, after which others, how long) are exact. What ops are in a gap is seen in windows only, by
// a global RecordFunction callback that is there as long as a window is open.
//
// A window watches a gap whole if it began before the window's end, however long it goes on, and
// so sees each gap with the same chance. A gap that was under way when the window opened is no use
// as a whole; if it turns out to be long, what was seen of it counts as a slice of time.
//
// Plain C functions, called with ctypes. Only ATen/record_function.h is included: it builds in
// seconds, and without pybind11.

#include <ATen/record_function.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
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
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>
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

constexpr size_t kMaxCells = 65536;
constexpr size_t kMaxTurns = kMaxCells / 4 * 3;  // the rest is for names that are new
constexpr uint32_t kMaxOrdinals = 512;
constexpr uint32_t kFewOrdinals = 4;  // where a gap is not seen from its beginning
constexpr uint32_t kNoCell = ~0u;
constexpr uint32_t kHeard = 3;  // most ops have one or two events inside
constexpr size_t kMaxMarks = 65536;
constexpr size_t kMaxPositions = 4096;  // in the program's loops
constexpr int kHistory = 8;             // marks, by which such positions are told apart
constexpr int kMaxEvents = 64;
constexpr int kOctaves = 48;  // of a gap's length in nanoseconds
constexpr int kLong = 27;     // gaps of this octave, 0.13 s, and longer are seen in slices
// The first op of a cell is sampled, and the n-th with a chance of 1 in `kThinning * n`, for which
// it stands for so many: enough where it is always on the same line, as most are.
constexpr double kThinning = 2;
constexpr int kAsks = 16;  // how often a kind of gap that has no line of an op asks for one
constexpr uint64_t kEventsAtOnce = 256;  // of a thread's work, until all know of it
constexpr int64_t kNever = INT64_MAX;
// What seeing an op takes, as far as it lengthens a gap; `meter.py` has the figures in full.
// What PyTorch takes for each event that it makes for us, for a node's name, and for silencing a
// thread. What our own part takes is measured, for one op in `kMeasured`.
constexpr int64_t kEventCostNs = 60, kNodeCostNs = 2000, kSilenceCostNs = 300;
constexpr uint32_t kMeasured = 16;
constexpr int64_t kLongestOpCostNs = 5000;   // what takes longer was held up
constexpr int64_t kLongestSampleNs = 50000;  // what takes longer is no sample's, but a collection's
constexpr char kNodePrefix[] = "autograd::engine::evaluate_function: ";
constexpr size_t kNodePrefixLength = sizeof(kNodePrefix) - 1;

int64_t now_ns(clockid_t clock = CLOCK_MONOTONIC) {
  timespec t;
  clock_gettime(clock, &t);
  return int64_t(t.tv_sec) * 1000000000 + t.tv_nsec;
}

bool starts_with(const char* text, const char* prefix) {
  return std::strncmp(text, prefix, std::strlen(prefix)) == 0;
}

// --- What is kept --------------------------------------------------------------------------------

// In which windows something was seen: in those after compilations and in `always`, whose gaps
// stand for themselves, or in those that chance placed, whose gaps stand for the others too.
enum Set : int32_t { kCertain, kRandom, kSets };

// The ops of one name after one mark, told apart by whether they are the gap's first of that name,
// its second, ...: mostly, each of these is always on the same line of the program. A cache line
// each, in the order in which they first ran: what else a step does has mostly driven them out of
// the cache.
struct alignas(64) Cell {
  size_t hash;       // of the name
  const char* name;  // interned
  int32_t mark;
  uint32_t slot;  // among the mark's cells
  int64_t count = 0;
  uint32_t ordinal;
  uint32_t first;                // the cell with that name's first op after the mark
  uint32_t successor = kNoCell;  // the cell that came after it last time, on any thread
  uint32_t next = 0;             // of a first one: the ordinal of its name's next op in that pass
  uint64_t pass = 0;             // of the gap, by the thread that was here last
};
static_assert(sizeof(Cell) == 64 || sizeof(Cell) == 128);

struct CellSum {
  int64_t count = 0, ns = 0;
};

// Slot and the line's number → weight, nanoseconds times weight.
using Samples = std::unordered_map<uint64_t, std::pair<double, double>>;

// Ops that were seen in one gap, or in several, by their cells' slots.
struct Ops {
  double ops = 0, op_ns = 0;
  std::vector<CellSum> cells;
  std::vector<uint32_t> touched;
  Samples samples;

  void add(uint32_t slot, int64_t count, int64_t ns) {
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

  void add(const Ops& other) {
    ops += other.ops;
    op_ns += other.op_ns;
    for (const uint32_t slot : other.touched) {
      add(slot, other.cells[slot].count, other.cells[slot].ns);
    }
    for (const auto& [place, sums] : other.samples) {
      auto& known = samples[place];
      known.first += sums.first;
      known.second += sums.second;
    }
  }

  void clear() {
    for (const uint32_t slot : touched) {
      cells[slot] = CellSum();
    }
    touched.clear();
    samples.clear();
    ops = op_ns = 0;
  }
};

// As it is handed out: what windows saw of one kind of gap. Sums over the gaps, and over the
// windows of what each saw, for means and for how far windows differ. `n` is of gaps, or of slices'
// seconds.
struct Seen {
  double n = 0, ns = 0, ops = 0, op_ns = 0;
  double windows = 0, n2 = 0, ops2 = 0, ops_n = 0, op_ns2 = 0, op_ns_n = 0;
};

struct Sums {
  Seen seen;
  uint64_t window = 0;
  double n = 0, ops = 0, op_ns = 0;  // in that window, not yet in the sums of squares

  void add(uint64_t in_window, double count, double ns, double new_ops, double new_op_ns) {
    if (in_window != window) {
      close();
      window = in_window;
    }
    seen.n += count;
    seen.ns += ns;
    seen.ops += new_ops;
    seen.op_ns += new_op_ns;
    n += count;
    ops += new_ops;
    op_ns += new_op_ns;
  }

  void close() {
    if (n > 0 || ops > 0) {
      seen.windows += 1;
      seen.n2 += n * n;
      seen.ops2 += ops * ops;
      seen.ops_n += ops * n;
      seen.op_ns2 += op_ns * op_ns;
      seen.op_ns_n += op_ns * n;
    }
    n = ops = op_ns = 0;
  }

  void add(Sums& other) {
    close();
    other.close();
    double* into = &seen.n;
    const double* from = &other.seen.n;
    for (size_t i = 0; i < sizeof(Seen) / sizeof(double); ++i) {
      into[i] += from[i];
    }
  }
};

struct Tally {
  Sums sums;
  Ops ops;
};

struct Observed {
  std::array<Tally, kSets> whole, slices;
};

// Of one length, exactly: how many there were and how long they took, on the main thread and on
// others.
struct Population {
  int64_t n[2] = {}, ns[2] = {};
};

struct Position;

// All gaps from one mark to another, in one position in the program's loop, by the octaves of
// their lengths.
struct Edge {
  int64_t number = 0;
  int64_t to = 0;
  Edge* next = nullptr;
  Position* after = nullptr;  // where it went on last time
  bool is_new = true;
  int first_octave = -1;  // of the very first gap, if a certain window saw it
  Tally first;            // that gap, whose ops may be none like the others'
  std::array<Population, kOctaves> population;
  std::array<std::unique_ptr<Observed>, kOctaves> observed;

  Observed& at(int octave) {
    if (!observed[octave]) {
      observed[octave] = std::make_unique<Observed>();
    }
    return *observed[octave];
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
struct Position {
  Mark* mark;
  History history;
  Edge* edges = nullptr;
  Edge* last = nullptr;
  std::vector<bool> wanted = {};  // by slot: samples, for kinds of gap that have none
};

struct Region {
  int64_t calls = 0, nested = 0, ns = 0, longest_ns = 0;
};

// What a thread's time went to, gaps apart.
struct Spent {
  int64_t captured_ns = 0, compile_ns = 0;
};

// What one thread runs, from mark to mark. Threads of the autograd engine work for the thread that
// waits for them, and write into its line.
struct Line {
  bool main = false;
  Position* from = nullptr;
  Position* position = nullptr;  // of its last mark
  Edge* edge = nullptr;          // of its last gap
  int64_t graph = 0;             // whose call ended last
  uint32_t in_data = 0;
  int64_t gap_start = 0;
  int64_t apart_ns = 0;     // of the gap under way: compilations
  int64_t collected = 0;    // `collected_ns` when it began
  uint32_t quiet = 0;       // threads that are quiet on it
  int64_t quiet_since = 0;  // what is not yet in `apart_ns`
  bool quiet_compiles = false;
  int64_t cost_ns = 0;             // of it: ours, before the window's end
  int64_t tail_cost_ns = 0;        // and after it
  uint64_t pass = 0;               // of that gap
  bool watched = false;            // is the gap seen whole
  int64_t seen_from = 0;           // since when it is seen, if it is
  int64_t seen_apart = 0;          // `apart_ns` at that time
  int64_t seen_cost = 0;           // `cost_ns` at that time
  std::array<Ops, kSets> head;     // of the gap: what began before a window's end
  std::array<Sums, kSets> slices;  // of it
  Ops tail;                        // of a watched one: the rest
  Spent spent;
};

struct Meter {
  std::mutex mutex;  // for all that ops are booked to
  std::unordered_set<std::string, std::hash<std::string>, std::equal_to<>> names;
  std::vector<Cell> cells;
  struct Key {
    const char* name;  // interned
    int32_t mark;
    uint32_t ordinal;
    bool operator==(const Key& other) const = default;
  };
  struct KeyHash {
    size_t operator()(const Key& key) const {
      return (std::hash<const void*>()(key.name) * 1000003u ^ size_t(key.mark)) * 1000003u ^
             key.ordinal;
    }
  };
  std::unordered_map<Key, uint32_t, KeyHash> index;  // in `cells`
  std::array<Ops, kSets> loose;                      // of threads that have no marks
  std::array<double, kSets> open_ns = {};            // how long windows saw slices
  int64_t lost = 0;
  uint64_t clears = 0;
  std::vector<const char*> events{""};  // by number; interned

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
  std::vector<Mark*> by_graph;                   // where a region has just ended
  std::unordered_map<uint64_t, Mark*> by_event;  // after events
  std::vector<Region> regions;                   // by direction
  Line* main = nullptr;                          // the main thread's
  std::vector<Line*> lines;
  std::vector<Line*> unused;  // of threads that are no more
  Spent others_before;        // of threads that are no more

  // Called for a sampled op: its name. The number of its line; -1 where Ctrl-C came meanwhile:
  // Python would lose the exception of a callback.
  int64_t (*sampler)(const char*) = nullptr;
  bool sample_each = false;
};

// Never destroyed: events may end while the process does.
Meter& meter() {
  static Meter* instance = new Meter();
  return *instance;
}

// Looks names up without making a string of each.
const char* intern(Meter& m, std::string_view name) { return m.names.emplace(name).first->c_str(); }

// The window that is open.
std::atomic<uint64_t> open_now{0};  // as `seen_as` has it; 0: none
std::atomic<int64_t> head_end{0};   // gaps and ops that begin later are not seen
std::atomic<int64_t> watching{0};   // gaps that are seen whole and go on
Set window_set = kCertain;
uint64_t window = 0;
int64_t opened_ns = 0;
// Time of garbage collections of the whole heap, on any thread: they hold up all that need the
// interpreter, and which op or gap they meet is chance. They are none of its time, for it may stand
// for others. Calls, which are all timed, have them.
std::atomic<int64_t> collected_ns{0};
std::atomic<uint64_t> passes{1};
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
// us; samples taken, and the CPU time that they took; how often a thread was silenced; how long
// windows were open. And how much of a program's loop has been seen: marks so far, the one at which
// a kind of gap was new, and the one at which the window opened.
struct Work {
  uint64_t events = 0, ops = 0, op_ns = 0, samples = 0, sample_ns = 0, silences = 0, open_ns = 0;
  uint64_t marks = 0, novel = 0, first = 0;
};

std::mutex work_mutex;
Work work;
uint64_t marks_seen = 0, novel_mark = 0, first_mark = 0;
int64_t edges_made = 0;

void end_line(Line* line);

struct Holder {
  Line* line = nullptr;
  ~Holder() {
    if (line != nullptr) {
      end_line(line);
    }
  }
};

struct Thread {
  uint32_t depth = 0;           // events under way that we saw start
  uint32_t op_depth = 0;        // the depth of the op under way; 0: none
  bool is_compilation = false;  // what is under way as an op
  uint64_t seen_by = 0;         // the window before whose end the op began; 0: none
  uint32_t regions = 0;
  uint32_t quiet = 0;  // compiling, or sampling
  uint32_t inner = 0;  // events inside the op or region under way
  bool silenced = false;
  int8_t engine = -1;  // is it a thread of the autograd engine; -1: not known yet
  int8_t main = -1;    // is it the main thread; -1: not known yet
  Work work;           // not yet in the sum of all threads
  int64_t op_start = 0;
  int64_t region_start = 0;
  int64_t op_collected = 0;  // `collected_ns` when the op under way began
  int64_t quiet_start = 0;
  Line* quiet_line = nullptr;
  int64_t region_in_op = 0;      // time of regions inside the op under way
  uint32_t until_measured = 1;   // ops
  bool measures = false;         // what the op under way costs
  int64_t measured_ns = 0;       // of it, so far
  double own_ns = 300;           // what ops have cost lately
  uint32_t last_cell = kNoCell;  // where this thread's last op was booked
  uint32_t random = 2463534242u;
};

thread_local Thread self;
thread_local Holder own;
std::atomic<Line*> last_line{nullptr};  // of a thread that is not the engine's

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

// Whose time this thread's is; nullptr where it has had no mark.
Line* line_of(Thread& t) {
  if (is_engine(t)) {
    return last_line.load(std::memory_order_relaxed);
  }
  if (own.line == nullptr && is_main(t)) {
    own.line = meter().main;
  }
  return own.line;
}

// --- Marks ---------------------------------------------------------------------------------------

Mark* new_mark(Meter& m, int64_t graph, int32_t event, bool in_data) {
  return &m.marks.emplace_back(Mark{int32_t(m.marks.size()), graph, event, in_data});
}

// Where a gap after an event begins; the call's end itself is event 0. Once there are too many, all
// that would be new are one.
Mark* mark_of(Meter& m, int64_t graph, int32_t event, bool in_data) {
  if (event == 0 && !in_data) {
    if (size_t(graph) >= m.by_graph.size()) {
      m.by_graph.resize(graph + 1);
    }
    if (m.by_graph[graph] == nullptr) {
      m.by_graph[graph] = new_mark(m, graph, 0, false);
    }
    return m.by_graph[graph];
  }
  const auto key = [&] { return uint64_t(graph) << 16 | uint64_t(event) << 1 | in_data; };
  const auto found = m.by_event.find(key());
  if (found != m.by_event.end()) {
    return found->second;
  }
  if (m.marks.size() >= kMaxMarks) {
    graph = 0;
  }
  Mark*& mark = m.by_event[key()];
  if (mark == nullptr) {
    mark = new_mark(m, graph, event, in_data);
  }
  return mark;
}

Edge* edge_to(Position& position, int64_t to) {
  if (position.last != nullptr && position.last->to == to) {
    return position.last;
  }
  Edge* edge = position.edges;
  while (edge != nullptr && edge->to != to) {
    edge = edge->next;
  }
  if (edge == nullptr) {
    edge = new Edge();
    edge->number = edges_made++;
    edge->to = to;
    edge->next = position.edges;
    position.edges = edge;
    novel_mark = marks_seen;
  }
  position.last = edge;
  return edge;
}

// Where a gap begins that comes after `mark`. Once there are too many positions, those that would
// be new are told apart by their mark only.
Position* position_after(Meter& m, Line& line, Mark* mark) {
  Position* position = line.edge != nullptr ? line.edge->after : nullptr;
  if (position != nullptr && position->mark == mark) {
    return position;
  }
  History history{mark->number};
  if (line.position != nullptr) {
    std::copy_n(line.position->history.begin(), kHistory - 1, history.begin() + 1);
  }
  auto found = m.by_history.find(history);
  if (found == m.by_history.end() && m.positions.size() >= kMaxPositions) {
    history = {mark->number};
    found = m.by_history.find(history);
  }
  if (found == m.by_history.end()) {
    position = &m.positions.emplace_back(Position{mark, history});
    m.by_history.emplace(history, position);
  } else {
    position = found->second;
  }
  if (line.edge != nullptr) {
    line.edge->after = position;
  }
  return position;
}

int octave_of(int64_t ns) { return ns < 2 ? 0 : std::min(kOctaves - 1, 63 - __builtin_clzll(ns)); }

// Cells of that kind of gap whose line is not known ask for a sample of their next op there.
void ask_for_lines(Meter& m, Position& position, const Tally& tally) {
  if (m.sampler == nullptr || tally.sums.seen.n > kAsks) {
    return;
  }
  std::vector<bool> known(tally.ops.cells.size());
  for (const auto& [place, sums] : tally.ops.samples) {
    if ((place >> 32) < known.size()) {
      known[place >> 32] = true;
    }
  }
  for (const uint32_t slot : tally.ops.touched) {
    if (!known[slot]) {
      position.wanted.resize(std::max<size_t>(position.wanted.size(), slot + 1));
      position.wanted[slot] = true;
    }
  }
}

// Has a kind of gap there asked for a sample of that cell.
bool take_wanted(Position& position, uint32_t slot) {
  if (slot >= position.wanted.size() || !position.wanted[slot]) {
    return false;
  }
  position.wanted[slot] = false;
  return true;
}

// What a thread has been quiet so far.
void settle_quiet(Line& line, int64_t now) {
  if (line.quiet == 0 || now <= line.quiet_since) {
    return;
  }
  line.apart_ns += std::max<int64_t>(0, now - std::max(line.quiet_since, line.gap_start));
  if (line.quiet_compiles) {
    line.spent.compile_ns += now - line.quiet_since;
  }
  line.quiet_since = now;
}

// Of the gap under way, what is none of its time.
int64_t apart_of(const Line& line) {
  return line.apart_ns + collected_ns.load(std::memory_order_relaxed) - line.collected;
}

// A window ends, or the gap under way does, of which the window has seen a slice.
void keep_slice(Line& line, int64_t until) {
  int64_t ns =
      until - line.seen_from - (apart_of(line) - line.seen_apart) - (line.cost_ns - line.seen_cost);
  if (line.quiet > 0) {
    ns -= std::max<int64_t>(0, until - line.quiet_since);
  }
  const Ops& head = line.head[window_set];
  Sums& sums = line.slices[window_set];
  if (ns > 0) {
    sums.add(window, 1e-9 * double(ns), double(ns), head.ops - sums.seen.ops,
             head.op_ns - sums.seen.op_ns);
  }
  line.tail.clear();
  if (line.watched) {
    line.watched = false;
    watching.fetch_sub(1, std::memory_order_relaxed);
  }
  line.seen_from = 0;
}

// The gap under way ends at the mark `to`. With the meter's mutex, as the next. True if it was the
// last that an ended window has waited for.
bool end_gap(Line& line, int64_t to, int64_t now) {
  Position* position = line.from;
  if (position == nullptr) {
    return false;
  }
  line.from = nullptr;
  ++marks_seen;
  settle_quiet(line, now);
  const int64_t ns = std::max<int64_t>(0, now - line.gap_start - apart_of(line));
  const int octave = octave_of(ns - std::min(line.cost_ns + line.tail_cost_ns, ns));
  Edge* edge = line.edge = edge_to(*position, to);
  const bool is_new = std::exchange(edge->is_new, false);
  Population& population = edge->population[octave];
  population.n[!line.main] += 1;
  population.ns[!line.main] += ns;
  if (line.seen_from == 0 && line.head[kCertain].ops == 0 && line.head[kRandom].ops == 0 &&
      line.slices[kCertain].seen.n == 0 && line.slices[kRandom].seen.n == 0) {
    return false;
  }
  const int64_t end = head_end.load(std::memory_order_relaxed);
  bool last = false;
  if (line.watched) {
    // Then there is nothing else of it.
    line.watched = false;
    last = watching.fetch_sub(1, std::memory_order_relaxed) == 1 && now >= end;
    Ops& ops = line.head[window_set];
    ops.add(line.tail);
    const bool is_first = is_new && window_set == kCertain;
    if (is_first) {
      edge->first_octave = octave;
    }
    Tally& tally = is_first ? edge->first : edge->at(octave).whole[window_set];
    tally.sums.add(window, 1, double(ns), ops.ops, ops.op_ns);
    tally.ops.add(ops);
    if (!is_first) {
      ask_for_lines(meter(), *position, tally);
    }
  } else {
    if (line.seen_from != 0) {
      keep_slice(line, std::min(now, end));
    }
    for (int set = 0; set < kSets && octave >= kLong; ++set) {
      if (line.slices[set].seen.n > 0) {
        Tally& tally = edge->at(octave).slices[set];
        tally.sums.add(line.slices[set]);
        tally.ops.add(line.head[set]);
      }
    }
  }
  line.tail.clear();
  for (int set = 0; set < kSets; ++set) {
    line.head[set].clear();
    line.slices[set] = Sums();
  }
  line.seen_from = 0;
  return last;
}

void begin_gap_at(Line& line, Position* position, int64_t now) {
  line.from = line.position = position;
  line.gap_start = now;
  line.apart_ns = line.cost_ns = line.tail_cost_ns = 0;
  line.collected = collected_ns.load(std::memory_order_relaxed);
  line.pass = passes.fetch_add(1, std::memory_order_relaxed);
  if (now < head_end.load(std::memory_order_relaxed)) {
    line.watched = true;
    line.seen_from = now;
    line.seen_apart = line.seen_cost = 0;
    watching.fetch_add(1, std::memory_order_relaxed);
  }
}

void begin_gap(Line& line, Mark* mark, int64_t now) {
  end_gap(line, 0, now);  // of a thread that shares the line
  begin_gap_at(line, position_after(meter(), line, mark), now);
}

// The gap under way is not to be counted.
void drop_gap(Line& line) {
  if (line.watched) {
    watching.fetch_sub(1, std::memory_order_relaxed);
  }
  const Line fresh = {.main = line.main, .spent = line.spent};
  line = fresh;
}

void close_window();

// What an ended window has waited for is over.
void close_ended_window() {
  std::lock_guard<std::mutex> lock(window_mutex);
  if (watching.load() == 0 && now_ns() >= head_end.load()) {
    close_window();
  }
}

Line* new_line(Meter& m, bool main) {
  if (m.unused.empty()) {
    m.unused.push_back(new Line());
  }
  Line* line = m.unused.back();
  m.unused.pop_back();
  line->main = main;
  m.lines.push_back(line);
  return line;
}

// Its thread ends.
void end_line(Line* line) {
  Meter& m = meter();
  std::lock_guard<std::mutex> lock(m.mutex);
  end_gap(*line, 0, now_ns());
  Line* expected = line;
  last_line.compare_exchange_strong(expected, line == m.main ? nullptr : m.main);
  m.others_before.captured_ns += line->spent.captured_ns;
  m.others_before.compile_ns += line->spent.compile_ns;
  m.lines.erase(std::remove(m.lines.begin(), m.lines.end(), line), m.lines.end());
  *line = Line();
  m.unused.push_back(line);
}

// The same, which begins with the thread's first mark. With the meter's mutex.
Line* line_for_mark(Thread& t) {
  Line* line = line_of(t);
  if (line == nullptr) {
    if (own.line == nullptr) {
      own.line = new_line(meter(), false);
    }
    line = own.line;
  }
  last_line.store(line, std::memory_order_relaxed);
  return line;
}

// An event that is a mark: its number, 1 and up; 0 for others.
int32_t event_number(Meter& m, const char* name) {
  const bool is_data = starts_with(name, "enumerate(DataLoader)");
  if (!is_data && !starts_with(name, "Optimizer.")) {
    return 0;
  }
  for (size_t i = 1; i < m.events.size(); ++i) {
    if (std::strcmp(m.events[i], name) == 0) {
      return int32_t(i);
    }
  }
  if (m.events.size() >= kMaxEvents) {
    return 0;
  }
  m.events.push_back(intern(m, name));
  return int32_t(m.events.size() - 1);
}

void event_mark(const at::RecordFunction& event, bool begins) {
  Thread& t = self;
  if (t.regions || t.quiet) {
    return;
  }
  const char* name = event.name();
  if (name[0] != 'O' && name[0] != 'e') {
    return;
  }
  Meter& m = meter();
  bool last;
  {
    std::lock_guard<std::mutex> lock(m.mutex);
    const int32_t number = event_number(m, name);
    if (number == 0) {
      return;
    }
    const int64_t now = now_ns();
    Line& line = *line_for_mark(t);
    last = end_gap(line, -(2 * number + begins), now);
    if (name[0] == 'e') {
      line.in_data += begins ? 1 : line.in_data > 0 ? -1 : 0;
    }
    begin_gap(line, mark_of(m, line.graph, 2 * number + begins, line.in_data > 0), now);
  }
  if (last) {
    close_ended_window();
  }
}

std::unique_ptr<at::ObserverContext> on_event_start(const at::RecordFunction& event) {
  event_mark(event, true);
  return nullptr;
}

void on_event_end(const at::RecordFunction& event, at::ObserverContext*) {
  event_mark(event, false);
}

// --- Ops -----------------------------------------------------------------------------------------

bool is_node(const char* name) { return std::strncmp(name, kNodePrefix, kNodePrefixLength) == 0; }

const char* op_name(const char* name) { return is_node(name) ? name + kNodePrefixLength : name; }

uint32_t add_cell(Meter& m, const Meter::Key& key, Mark* mark, size_t hash, uint32_t first) {
  if (m.cells.size() >= (key.ordinal == 0 ? kMaxCells : kMaxTurns)) {
    return kNoCell;
  }
  const uint32_t index = m.cells.size();
  Cell& cell = m.cells.emplace_back();
  cell.hash = hash;
  cell.name = key.name;
  cell.mark = key.mark;
  cell.slot = index;
  if (mark != nullptr) {
    cell.slot = mark->cells.size();
    mark->cells.push_back(index);
  }
  cell.ordinal = key.ordinal;
  cell.first = first;
  m.index.emplace(key, index);
  return index;
}

// Of the next op of a name, by its first cell.
uint32_t ordinal_after(const Cell& first, uint64_t pass) {
  return first.pass == pass ? first.next : 0;
}

// The cell of an op in the pass under way; kNoCell if there are too many.
uint32_t index_of(Meter& m, std::string_view name, size_t hash, Mark* mark, uint64_t pass) {
  Meter::Key key{intern(m, name), mark == nullptr ? -1 : mark->number, 0};
  const auto first = m.index.find(key);
  if (first == m.index.end()) {
    return add_cell(m, key, mark, hash, m.cells.size());
  }
  key.ordinal = ordinal_after(m.cells[first->second], pass);
  const auto found = m.index.find(key);
  if (found != m.index.end()) {
    return found->second;
  }
  const uint32_t added = add_cell(m, key, mark, hash, first->second);
  return added == kNoCell ? first->second : added;
}

// Which cell an op is of; kNoCell if there are too many.
uint32_t find_cell(Meter& m, Thread& t, std::string_view name, Mark* mark, uint64_t pass,
                   uint32_t turns) {
  const int32_t number = mark == nullptr ? -1 : mark->number;
  const size_t hash = std::hash<std::string_view>()(name);
  // Mostly the one that came next last time comes next.
  uint32_t index = t.last_cell < m.cells.size() ? m.cells[t.last_cell].successor : kNoCell;
  if (index != kNoCell) {
    const Cell& cell = m.cells[index];
    if (cell.hash != hash || cell.mark != number ||
        cell.ordinal != ordinal_after(m.cells[cell.first], pass)) {
      index = kNoCell;
    }
  }
  if (index == kNoCell) {
    index = index_of(m, name, hash, mark, pass);
    if (index == kNoCell) {
      ++m.lost;
      return kNoCell;
    }
    if (t.last_cell < m.cells.size()) {
      m.cells[t.last_cell].successor = index;
    }
  }
  t.last_cell = index;
  Cell& first = m.cells[m.cells[index].first];
  first.next = std::min(ordinal_after(first, pass) + 1, turns);
  first.pass = pass;
  ++m.cells[index].count;
  return index;
}

void flush_work(Thread& t) {
  if (t.work.events == 0) {
    return;
  }
  std::lock_guard<std::mutex> lock(work_mutex);
  work.events += t.work.events;
  work.ops += t.work.ops;
  work.op_ns += t.work.op_ns;
  work.samples += t.work.samples;
  work.sample_ns += t.work.sample_ns;
  work.silences += t.work.silences;
  t.work = Work();
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
  if (is_wrapper(op_name(name))) {
    return nullptr;
  }
  if (at::in_parallel_region()) {
    return nullptr;  // a worker's share of an op that another thread runs
  }
  t.measures = --t.until_measured == 0;
  const int64_t start = t.measures ? now_ns() : 0;
  if (t.measures) {
    t.until_measured = kMeasured;
  }
  t.is_compilation = is_compilation(name);
  ++t.work.ops;
  t.op_depth = t.depth;
  t.region_in_op = 0;
  t.op_collected = collected_ns.load(std::memory_order_relaxed);
  t.op_start = now_ns();
  t.measured_ns = t.op_start - start;
  t.seen_by = open_now.load();
  if (t.op_start >= head_end.load()) {
    t.seen_by = 0;
  }
  return nullptr;
}

// Where an op is booked. As soon as `pass` is another, something else is kept there.
struct Booking {
  Ops* ops = nullptr;
  const uint64_t* pass = nullptr;
  uint64_t was = 0;
  uint32_t slot = 0;
};

// Takes a sample of the line that the op is on.
void sample(Thread& t, Meter& m, const char* name, const Booking& booking, int64_t ns,
            double weight) {
  ++t.quiet;
  const int64_t start = now_ns(CLOCK_THREAD_CPUTIME_ID);
  // Mostly, Ctrl-C comes while an op computes: then it is for the program, and nothing is
  // sampled.
  const int gil = PyGILState_Ensure();
  decltype(m.sampler) sampler;
  {
    // It may have gone while this thread waited for the interpreter.
    std::lock_guard<std::mutex> lock(m.mutex);
    sampler = m.sampler;
  }
  int64_t line = -1;
  if (sampler != nullptr) {
    line = PyOS_InterruptOccurred() ? -1 : sampler(name);
    if (line < 0) {
      PyErr_SetInterruptEx(SIGINT);
    }
  }
  PyGILState_Release(gil);
  const int64_t took = now_ns(CLOCK_THREAD_CPUTIME_ID) - start;
  t.work.sample_ns += std::min(took, kLongestSampleNs);
  ++t.work.samples;
  --t.quiet;
  std::lock_guard<std::mutex> lock(m.mutex);
  if (Line* owner = line_of(t)) {
    owner->cost_ns += took;
  }
  if (line >= 0 && *booking.pass == booking.was) {
    auto& sums = booking.ops->samples[uint64_t(booking.slot) << 32 | uint32_t(line)];
    sums.first += weight;
    sums.second += weight * double(ns);
  }
}

// What an op of the gap under way belongs to; nullptr if to nothing that is seen.
Ops* seen_part(Line& line, uint64_t seen_by, int64_t ns) {
  if (seen_by != 0 && seen_by == open_now.load() && line.seen_from != 0) {
    return &line.head[set_of(seen_by)];
  }
  if (line.watched) {
    return &line.tail;
  }
  // It began in a window that has closed meanwhile.
  Sums& sums = line.slices[set_of(seen_by)];
  if (seen_by == 0 || sums.seen.n == 0) {
    return nullptr;
  }
  sums.add(sums.window, 0, 0, 1, double(ns));
  return &line.head[set_of(seen_by)];
}

void on_end(const at::RecordFunction& event, at::ObserverContext*) {
  Thread& t = self;
  if (t.depth == 0) {
    return;  // it began on another thread
  }
  if (t.depth-- != t.op_depth) {
    return;
  }
  const int64_t end = now_ns();
  t.op_depth = 0;
  const int64_t own_ns = int64_t(t.own_ns) + (is_node(event.name()) ? kNodeCostNs : 0) +
                         (t.silenced ? kSilenceCostNs : 0);
  const int64_t cost_ns = own_ns + (1 + t.inner) * kEventCostNs;
  t.work.op_ns += own_ns;
  listen_again(t);
  if (t.work.events >= kEventsAtOnce) {
    flush_work(t);
  }
  if (t.is_compilation) {
    return;
  }
  const int64_t collected = collected_ns.load(std::memory_order_relaxed) - t.op_collected;
  const int64_t ns = std::max<int64_t>(0, end - t.op_start - t.region_in_op - collected);
  const char* name;
  Booking booking;
  double weight = 0;  // 0: no sample
  Meter& m = meter();
  {
    std::lock_guard<std::mutex> lock(m.mutex);
    Line* line = line_of(t);
    if (line != nullptr && line->from == nullptr) {
      line = nullptr;  // it has no marks yet
    }
    if (t.seen_by == 0 && !(line != nullptr && line->watched)) {
      return;
    }
    booking.ops = line != nullptr ? seen_part(*line, t.seen_by, ns) : &m.loose[set_of(t.seen_by)];
    if (booking.ops == nullptr) {
      return;
    }
    booking.pass = line != nullptr ? &line->pass : &m.clears;
    booking.was = *booking.pass;
    const uint32_t index = find_cell(
        m, t, op_name(event.name()), line ? line->from->mark : nullptr, line ? booking.was : 0,
        line != nullptr && line->watched ? kMaxOrdinals : kFewOrdinals);
    if (index == kNoCell) {
      return;
    }
    if (line != nullptr) {
      (t.seen_by != 0 ? line->cost_ns : line->tail_cost_ns) += cost_ns;
    }
    Cell& cell = m.cells[index];
    name = cell.name;
    booking.slot = cell.slot;
    booking.ops->ops += 1;
    booking.ops->op_ns += double(ns);
    booking.ops->add(booking.slot, 1, ns);
    if (m.sampler) {
      if (cell.count == 1 || m.sample_each ||
          (line != nullptr && take_wanted(*line->from, cell.slot))) {
        weight = 1;
      } else {
        t.random ^= t.random << 13;
        t.random ^= t.random >> 17;
        t.random ^= t.random << 5;
        const double every = kThinning * double(cell.count);
        weight = double(t.random) * every < 4294967296.0 ? every : 0;
      }
    }
  }
  if (t.measures) {
    const int64_t took = t.measured_ns + now_ns() - end;
    t.own_ns += 0.1 * (double(std::min(took, kLongestOpCostNs)) - t.own_ns);
  }
  // While an op's exception passes through here, Python has it: nothing of Python's may be called.
  if (weight > 0 && std::uncaught_exceptions() == 0) {
    sample(t, m, name, booking, ns, weight);
  }
}

// --- Windows -------------------------------------------------------------------------------------

// With `window_mutex`. `whole`: gaps that are under way count as if they began now.
void open_window(Set set, int64_t until, bool whole) {
  if (handle != at::INVALID_CALLBACK_HANDLE) {
    return;
  }
  has_company = at::getStepCallbacksUnlessEmpty(at::RecordScope::FUNCTION).has_value();
  // Not BACKWARD_FUNCTION: the engine's own FUNCTION event encloses the one of each node, and a
  // second name put together for each would cost 2 us.
  handle = at::addGlobalCallback(
      at::RecordFunctionCallback(on_start, on_end).scopes({at::RecordScope::FUNCTION}));
  Meter& m = meter();
  {
    std::lock_guard<std::mutex> lock(m.mutex);
    ++window;
    window_set = set;
    opened_ns = now_ns();
    first_mark = marks_seen;
    head_end = until;
    for (Line* line : m.lines) {
      if (line->from != nullptr) {
        settle_quiet(*line, opened_ns);
        line->seen_from = opened_ns;
        line->seen_apart = apart_of(*line);
        line->seen_cost = line->cost_ns;
        if (whole) {
          line->watched = true;
          watching.fetch_add(1, std::memory_order_relaxed);
        }
      }
    }
    open_now = seen_as(window, set);
  }
}

// With `window_mutex`. Gaps that were to be seen whole are slices from here on.
void close_window() {
  if (handle == at::INVALID_CALLBACK_HANDLE) {
    return;
  }
  at::removeCallback(handle);
  handle = at::INVALID_CALLBACK_HANDLE;
  Meter& m = meter();
  {
    std::lock_guard<std::mutex> lock(m.mutex);
    open_now = 0;
    const int64_t now = now_ns();
    const int64_t end = std::min(now, head_end.load());
    head_end = 0;
    for (Line* line : m.lines) {
      if (line->seen_from != 0) {
        keep_slice(*line, end);
      }
    }
    m.open_ns[window_set] += double(std::max<int64_t>(0, end - opened_ns));
    std::lock_guard<std::mutex> work_lock(work_mutex);
    work.open_ns += now - opened_ns;
  }
  window_changed.notify_all();
}

bool is_open(uint64_t which) { return handle != at::INVALID_CALLBACK_HANDLE && window == which; }

// Until a moment, or until woken, or until that window, if it is any, is closed.
void wait_until(std::unique_lock<std::mutex>& lock, int64_t moment, uint64_t awake,
                uint64_t which) {
  while (wakes.load() == awake && (which == 0 || is_open(which))) {
    const int64_t left = moment - now_ns();
    if (left <= 0) {
      return;
    }
    window_changed.wait_for(lock, std::chrono::nanoseconds(left));
  }
}

// That window has ended: what has begun in it may go on for as long as `longest_ns`.
void finish(std::unique_lock<std::mutex>& lock, int64_t longest_ns, uint64_t awake,
            uint64_t which) {
  if (watching.load() > 0) {
    wait_until(lock, now_ns() + longest_ns, awake, which);
  }
  if (is_open(which)) {
    close_window();
  }
}

// While a process forks, nothing of ours is half done, and the child's locks are free. What
// PyTorch locks to keep our callbacks is locked with `window_mutex` only.
void before_fork() {
  window_mutex.lock();
  meter().mutex.lock();
  work_mutex.lock();
}

void after_fork() {
  work_mutex.unlock();
  meter().mutex.unlock();
  window_mutex.unlock();
}

const int forks_are_seen = pthread_atfork(before_fork, after_fork, after_fork);

}  // namespace

extern "C" {

// The size of a struct that is handed out, by its name in build.py, for Python to compare with its
// own; 0 where there is none of that name.
int64_t op_meter_size(const char* name);

// The main thread's program begins at `since_ns` of CLOCK_MONOTONIC; what was before is left out.
// It has spent `compile_ns` in compilations since.
void op_meter_begin(int64_t since_ns, int64_t compile_ns) {
  Meter& m = meter();
  std::lock_guard<std::mutex> window_lock(window_mutex);
  {
    std::lock_guard<std::mutex> lock(m.mutex);
    if (m.main == nullptr) {
      m.main = new_line(m, true);
    }
    last_line = m.main;
    drop_gap(*m.main);
    begin_gap(*m.main, mark_of(m, 0, 0, false), since_ns);
    m.main->apart_ns = compile_ns;
    m.main->spent.compile_ns += compile_ns;
  }
  if (events_handle == at::INVALID_CALLBACK_HANDLE) {
    events_handle = at::addGlobalCallback(at::RecordFunctionCallback(on_event_start, on_event_end)
                                              .scopes({at::RecordScope::USER_SCOPE}));
  }
}

// A window whose gaps stand for themselves, until `op_meter_finish`. One that chance opened ends.
void op_meter_open(int32_t whole) {
  std::lock_guard<std::mutex> lock(window_mutex);
  if (head_end != kNever) {
    close_window();
  }
  open_window(kCertain, kNever, whole);
}

void op_meter_close() {
  std::lock_guard<std::mutex> lock(window_mutex);
  close_window();
}

// The window ends: no more gaps are seen than those that have begun. Its number, for
// `op_meter_finish`.
uint64_t op_meter_end() {
  std::lock_guard<std::mutex> lock(window_mutex);
  head_end = std::min(now_ns(), head_end.load());
  return window;
}

// These three without the interpreter lock. `op_meter_wake` ends them early.
void op_meter_finish(uint64_t which, int64_t longest_ns, uint64_t awake) {
  std::unique_lock<std::mutex> lock(window_mutex);
  finish(lock, longest_ns, awake, which);
}

void op_meter_wait(int64_t ns, uint64_t awake) {
  std::unique_lock<std::mutex> lock(window_mutex);
  wait_until(lock, now_ns() + ns, awake, 0);
}

// A window that opens in `wait_ns` and lasts `window_ns`, then until what began in it has ended,
// `longest_ns` at most. Nothing where another one is open.
void op_meter_window(int64_t wait_ns, int64_t window_ns, int64_t longest_ns, uint64_t awake) {
  std::unique_lock<std::mutex> lock(window_mutex);
  wait_until(lock, now_ns() + wait_ns, awake, 0);
  if (wakes.load() != awake || handle != at::INVALID_CALLBACK_HANDLE) {
    return;
  }
  const int64_t end = now_ns() + window_ns;
  open_window(kRandom, end, false);
  const uint64_t which = window;
  wait_until(lock, end, awake, which);
  finish(lock, longest_ns, awake, which);
}

uint64_t op_meter_awake() { return wakes.load(); }

void op_meter_wake() {
  {
    std::lock_guard<std::mutex> lock(window_mutex);
    ++wakes;
  }
  window_changed.notify_all();
}

void op_meter_enter(int64_t key) {
  Thread& t = self;
  if (t.regions++ > 0) {
    return;
  }
  listen_again(t);
  flush_work(t);
  Meter& m = meter();
  bool last;
  {
    std::lock_guard<std::mutex> lock(m.mutex);
    t.region_start = now_ns();
    last = end_gap(*line_for_mark(t), key, t.region_start);
  }
  if (last) {
    close_ended_window();
  }
}

void op_meter_leave(int64_t key) {
  Thread& t = self;
  if (t.regions == 0) {
    return;
  }
  Meter& m = meter();
  if (--t.regions == 0 && t.op_depth == 0) {
    listen_again(t);
  }
  std::lock_guard<std::mutex> lock(m.mutex);
  if (size_t(key) >= m.regions.size()) {
    m.regions.resize(key + 1);
  }
  Region& region = m.regions[key];
  if (t.regions > 0) {
    region.nested += 1;
    return;
  }
  const int64_t now = now_ns();
  const int64_t ns = now - t.region_start;
  t.region_in_op += ns;
  region.calls += 1;
  region.ns += ns;
  region.longest_ns = std::max(region.longest_ns, ns);
  Line& line = *line_for_mark(t);
  line.spent.captured_ns += ns;
  line.graph = key;
  begin_gap(line, mark_of(m, key, 0, line.in_data > 0), now);
}

// What this thread runs from here to the matching call with -1 is not the program's. `compiles`:
// it is a compilation, which may have begun before this library was there, at `since_ns`.
void op_meter_quiet(int32_t change, int32_t compiles, int64_t since_ns) {
  Thread& t = self;
  Meter& m = meter();
  if (change < 0 && t.quiet == 0) {
    return;  // it began before a fork
  }
  if (t.quiet == 0) {
    // A graph can be compiled inside an op. What is counted for it needs events.
    listen_again(t);
    t.quiet_start = since_ns > 0 ? since_ns : now_ns();
    std::lock_guard<std::mutex> lock(m.mutex);
    Line* line = t.quiet_line = compiles ? line_for_mark(t) : line_of(t);
    if (line != nullptr && line->quiet++ == 0) {
      line->quiet_since = t.quiet_start;
      line->quiet_compiles = compiles;
    }
  }
  t.quiet += change;
  if (t.quiet == 0) {
    const int64_t now = now_ns();
    t.region_start += now - t.quiet_start;
    t.op_start += now - t.quiet_start;
    t.inner = 0;
    std::lock_guard<std::mutex> lock(m.mutex);
    Line* line = t.quiet_line;
    if (line != nullptr && line->quiet > 0) {
      settle_quiet(*line, now);
      --line->quiet;
    }
  }
}

// A collection of the whole heap is over.
void op_meter_collected(int64_t ns) { collected_ns += ns; }

// `each`: every op, instead of fewer and fewer; a null sampler takes none.
void op_meter_sample(int64_t (*sampler)(const char*), int32_t each) {
  Meter& m = meter();
  std::lock_guard<std::mutex> lock(m.mutex);
  m.sampler = sampler;
  m.sample_each = each;
}

void op_meter_work(Work* out) {
  flush_work(self);
  std::lock_guard<std::mutex> lock(meter().mutex);
  std::lock_guard<std::mutex> work_lock(work_mutex);
  *out = work;
  if (open_now) {
    out->open_ns += now_ns() - opened_ns;
  }
  out->marks = marks_seen;
  out->novel = novel_mark;
  out->first = first_mark;
}

// Forgets all, but for the numbers of events. Gaps that are under way begin now.
void op_meter_clear() {
  Meter& m = meter();
  std::lock_guard<std::mutex> lock(m.mutex);
  m.index.clear();
  m.cells.clear();
  for (Position& position : m.positions) {
    while (Edge* edge = position.edges) {
      position.edges = edge->next;
      delete edge;
    }
  }
  m.positions.clear();
  m.by_history.clear();
  m.marks.clear();
  m.by_graph.clear();
  m.by_event.clear();
  m.regions.clear();
  for (Ops& ops : m.loose) {
    ops = Ops();
  }
  m.open_ns = {};
  m.lost = 0;
  m.others_before = Spent();
  ++m.clears;
  const int64_t now = now_ns();
  for (Line* line : m.lines) {
    const bool in_gap = line->from != nullptr;
    const bool main = line->main;
    if (line->watched) {
      watching.fetch_sub(1);
    }
    const Line was = std::exchange(*line, Line());
    line->main = main;
    line->quiet = was.quiet;
    line->quiet_since = now;
    line->quiet_compiles = was.quiet_compiles;
    if (in_gap) {
      begin_gap(*line, mark_of(m, 0, 0, false), now);
    }
  }
  marks_seen = novel_mark = first_mark = 0;
}

// In a forked child, where only this thread exists.
void op_meter_after_fork() {
  Meter& m = meter();
  new (&window_changed) std::condition_variable;  // other threads may have waited for it
  listen_again(self);
  self = Thread();
  if (handle != at::INVALID_CALLBACK_HANDLE) {
    at::removeCallback(handle);
    handle = at::INVALID_CALLBACK_HANDLE;
  }
  open_now = 0;
  head_end = 0;
  watching = 0;
  m.lines.clear();  // those of other threads are lost, and so is this one's, if another was main
  m.main = own.line = nullptr;
  last_line = nullptr;
  op_meter_clear();
}

}  // extern "C"

// --- Reading -------------------------------------------------------------------------------------

namespace {

// As they are handed out.
struct MarkRow {
  int64_t mark, graph, event, in_data;
};

struct KindRow {
  int64_t kind, edge, mark, to, octave;
  Population population;
  Seen whole[kSets], slices[kSets], first;
};

struct CellRow {
  int64_t kind, edge;  // -1: of threads without marks
  int64_t part;        // 2 * (is it of slices) + set; 4: the first gap
  int64_t mark, slot, ordinal;
  const char* name;
  int64_t count, ns;
};

struct SampleRow {
  int64_t kind, edge, part, mark, slot, line;
  double weight, weighted_ns;
};

struct TimeRow {
  int64_t main_captured_ns, main_compile_ns, other_captured_ns, other_compile_ns;
  double open_ns[kSets];
  int64_t lost;
};

// Kinds of gap are numbered by their edge and octave.
int64_t kind_of(const Edge& edge, int octave) { return edge.number * kOctaves + octave; }
int64_t edge_of(int64_t kind) { return kind < 0 ? -1 : kind / kOctaves; }

template <typename Visit>
void each_kind(Meter& m, Visit visit) {
  for (Position& position : m.positions) {
    for (Edge* edge = position.edges; edge != nullptr; edge = edge->next) {
      for (int octave = 0; octave < kOctaves; ++octave) {
        const Population& population = edge->population[octave];
        if (population.n[0] + population.n[1] > 0) {
          visit(kind_of(*edge, octave), *position.mark, *edge, octave);
        }
      }
    }
  }
}

template <typename Visit>
void each_part(Meter& m, Visit visit) {
  each_kind(m, [&](int64_t kind, Mark& mark, Edge& edge, int octave) {
    if (octave == edge.first_octave) {
      visit(kind, 2 * kSets, &mark, edge.first.ops);
    }
    Observed* observed = edge.observed[octave].get();
    if (observed != nullptr) {
      for (int set = 0; set < kSets; ++set) {
        visit(kind, set, &mark, observed->whole[set].ops);
        visit(kind, 2 + set, &mark, observed->slices[set].ops);
      }
    }
  });
  for (int set = 0; set < kSets; ++set) {
    visit(-1, 2 + set, nullptr, m.loose[set]);
  }
}

template <typename RowType>
struct Output {
  RowType* out;
  int64_t capacity, size = 0;
  void add(const RowType& row) {
    if (size < capacity) {
      out[size] = row;
    }
    ++size;
  }
};

}  // namespace

extern "C" {

int64_t op_meter_size(const char* name) {
  const std::string_view asked = name;
  if (asked == "MarkRow") return sizeof(MarkRow);
  if (asked == "KindRow") return sizeof(KindRow);
  if (asked == "CellRow") return sizeof(CellRow);
  if (asked == "SampleRow") return sizeof(SampleRow);
  if (asked == "RegionRow") return sizeof(Region);
  if (asked == "TimeRow") return sizeof(TimeRow);
  if (asked == "Work") return sizeof(Work);
  return 0;
}

// Gaps that are under way, and have been for so long, end here and go on as new ones, for what is
// read next to be whole.
void op_meter_settle(int64_t longer_than_ns) {
  Meter& m = meter();
  std::lock_guard<std::mutex> lock(m.mutex);
  const int64_t now = now_ns();
  for (Line* line : m.lines) {
    settle_quiet(*line, now);
    Position* from = line->from;
    if (from != nullptr && now - line->gap_start >= longer_than_ns) {
      end_gap(*line, 0, now);
      begin_gap_at(*line, from, now);
    }
  }
}

// Copy out at most `capacity` records; return how many there are.
int64_t op_meter_marks(MarkRow* out, int64_t capacity) {
  Meter& m = meter();
  std::lock_guard<std::mutex> lock(m.mutex);
  Output<MarkRow> output{out, capacity};
  for (const Mark& mark : m.marks) {
    output.add({mark.number, mark.graph, mark.event, mark.in_data});
  }
  return output.size;
}

int64_t op_meter_kinds(KindRow* out, int64_t capacity) {
  Meter& m = meter();
  std::lock_guard<std::mutex> lock(m.mutex);
  Output<KindRow> output{out, capacity};
  each_kind(m, [&](int64_t kind, Mark& mark, Edge& edge, int octave) {
    KindRow row{kind, edge.number, mark.number, edge.to, octave, edge.population[octave],
                {},   {},          {}};
    if (octave == edge.first_octave) {
      edge.first.sums.close();
      row.first = edge.first.sums.seen;
    }
    if (Observed* observed = edge.observed[octave].get()) {
      for (int set = 0; set < kSets; ++set) {
        observed->whole[set].sums.close();
        row.whole[set] = observed->whole[set].sums.seen;
        row.slices[set] = observed->slices[set].sums.seen;
      }
    }
    output.add(row);
  });
  return output.size;
}

int64_t op_meter_cells(CellRow* out, int64_t capacity) {
  Meter& m = meter();
  std::lock_guard<std::mutex> lock(m.mutex);
  Output<CellRow> output{out, capacity};
  each_part(m, [&](int64_t kind, int part, const Mark* mark, const Ops& seen) {
    for (const uint32_t slot : seen.touched) {
      const Cell& cell = m.cells[mark == nullptr ? slot : mark->cells[slot]];
      const CellSum& sum = seen.cells[slot];
      output.add(
          {kind, edge_of(kind), part, cell.mark, slot, cell.ordinal, cell.name, sum.count, sum.ns});
    }
  });
  return output.size;
}

int64_t op_meter_samples(SampleRow* out, int64_t capacity) {
  Meter& m = meter();
  std::lock_guard<std::mutex> lock(m.mutex);
  Output<SampleRow> output{out, capacity};
  each_part(m, [&](int64_t kind, int part, const Mark* mark, const Ops& seen) {
    for (const auto& [place, sums] : seen.samples) {
      output.add({kind, edge_of(kind), part, mark == nullptr ? -1 : mark->number,
                  int64_t(place >> 32), int64_t(uint32_t(place)), sums.first, sums.second});
    }
  });
  return output.size;
}

// By direction.
int64_t op_meter_regions(Region* out, int64_t capacity) {
  Meter& m = meter();
  std::lock_guard<std::mutex> lock(m.mutex);
  std::copy_n(m.regions.begin(), std::min<int64_t>(m.regions.size(), capacity), out);
  return m.regions.size();
}

void op_meter_times(TimeRow* out) {
  Meter& m = meter();
  std::lock_guard<std::mutex> lock(m.mutex);
  Spent mine, others = m.others_before;
  for (const Line* line : m.lines) {
    Spent& sum = line->main ? mine : others;
    sum.captured_ns += line->spent.captured_ns;
    sum.compile_ns += line->spent.compile_ns;
  }
  *out = {mine.captured_ns,
          mine.compile_ns,
          others.captured_ns,
          others.compile_ns,
          {m.open_ns[0], m.open_ns[1]},
          m.lost};
  if (open_now) {
    const int64_t end = std::min(now_ns(), head_end.load());
    out->open_ns[window_set] += double(std::max<int64_t>(0, end - opened_ns));
  }
}

// The name of an event by its number; nullptr for one that there is none of.
const char* op_meter_event(int64_t number) {
  Meter& m = meter();
  std::lock_guard<std::mutex> lock(m.mutex);
  return number >= 0 && size_t(number) < m.events.size() ? m.events[number] : nullptr;
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
