// Ops: what the callback books in the window that is open.

#pragma once

#include "_op_calls.h"
#include "_op_gpu.h"
#include "_op_lines.h"
#include "_op_marks.h"

namespace {

bool is_node(const char* name) {
  return name[0] == 'a' && name[1] == 'u' &&
         std::strncmp(name, kNodePrefix, kNodePrefixLength) == 0;
}

const char* op_name(const char* name) { return is_node(name) ? name + kNodePrefixLength : name; }

uint32_t add_cell(Meter& m, const Meter::Key& key, Mark* mark, const char* before, uint32_t first) {
  const bool is_turn = key.ordinal > 0 || key.before != nullptr;
  if (m.cells.size() >= (is_turn ? kMaxTurns : kMaxCells)) {
    return kNoCell;
  }
  const uint32_t index = m.cells.size();
  Cell& cell = m.cells.emplace_back();
  cell.name = key.name;
  cell.before = before;
  cell.mark = key.mark;
  cell.slot = index;
  if (mark != nullptr) {
    cell.slot = mark->cells.size();
    mark->cells.push_back(index);
  }
  cell.ordinal = uint16_t(key.ordinal);
  cell.first = first;
  m.index.emplace(key, index);
  return index;
}

// Of the next op of a name, by its first cell.
uint32_t ordinal_after(const Cell& first, uint64_t pass) {
  return first.pass == pass ? first.next : 0;
}

bool comes_after(const Cell& cell, const char* before) {
  return before == nullptr || cell.before == before;
}

// The cell of an op in the pass under way; kNoCell if there are too many.
uint32_t index_of(Meter& m, const char* name, Mark* mark, uint64_t pass, const char* before) {
  Meter::Key key{intern(m, name), mark == nullptr ? -1 : mark->number, 0, nullptr};
  const auto found_first = m.index.find(key);
  if (found_first == m.index.end()) {
    return add_cell(m, key, mark, before, m.cells.size());
  }
  const uint32_t first = found_first->second;
  key.ordinal = ordinal_after(m.cells[first], pass);
  const auto found = m.index.find(key);
  if (found == m.index.end()) {
    const uint32_t added = add_cell(m, key, mark, before, first);
    return added == kNoCell ? first : added;
  }
  if (comes_after(m.cells[found->second], before)) {
    return found->second;
  }
  key.before = before;
  const auto found_after = m.index.find(key);
  if (found_after != m.index.end()) {
    return found_after->second;
  }
  const uint32_t added = add_cell(m, key, mark, before, first);
  return added == kNoCell ? found->second : added;
}

// The name of the op that this thread had before, in the same pass.
const char* op_before(const Meter& m, const Thread& t, uint64_t pass, bool from_begin) {
  if (t.last_cell < m.cells.size()) {
    const Cell& last = m.cells[t.last_cell];
    if (m.cells[last.first].pass == pass) {
      return last.name;
    }
  }
  return from_begin ? kGapBegin : nullptr;
}

// Which cell an op is of; kNoCell if there are too many.
uint32_t find_cell(Meter& m, Thread& t, const char* name, Mark* mark, uint64_t pass,
                   bool from_begin) {
  const int32_t number = mark == nullptr ? -1 : mark->number;
  const char* before = op_before(m, t, pass, from_begin);
  // Mostly the one that came next last time comes next.
  uint32_t index = t.last_cell < m.cells.size() ? m.cells[t.last_cell].successor : kNoCell;
  if (index != kNoCell) {
    const Cell& cell = m.cells[index];
    if (cell.mark != number || !comes_after(cell, before) ||
        cell.ordinal != ordinal_after(m.cells[cell.first], pass) ||
        std::strcmp(cell.name, name) != 0) {
      index = kNoCell;
    }
  }
  if (index == kNoCell) {
    index = index_of(m, name, mark, pass, before);
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
  first.next =
      uint16_t(std::min(ordinal_after(first, pass) + 1, from_begin ? kMaxOrdinals : kFewOrdinals));
  first.pass = pass;
  ++m.cells[index].count;
  return index;
}

[[gnu::noinline]] void flush_work(Thread& t) {
  t.has_work = false;
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
  switch (name[0]) {
    case 'd':
      return std::strcmp(name, "dynamo") == 0;
    case 'e':
      return starts_with(name, "entire_backward_compile");
    default:
      return false;
  }
}

// The callbacks that an event has, if ours is the only one.
std::optional<at::StepCallbacks> only_ours() {
  if (has_company.load(std::memory_order_relaxed) || at::hasThreadLocalCallbacks()) {
    return std::nullopt;
  }
  auto listening = at::getStepCallbacksUnlessEmpty(at::RecordScope::FUNCTION);
  return listening && listening->callbacks_.size() == 1 ? std::move(listening) : std::nullopt;
}

// What is inside an op or a region is nothing to us, and takes PyTorch 0.1 us an event. From so
// many on it makes none on this thread; to switch that off and on again takes as long as eight of
// them. A region that has had so many makes none from its next call on. Only while the callback is
// the only one: others want to see them.
void silence(Thread& t) {
  if (only_ours()) {
    at::enableRecordFunction(false);
    t.silenced = true;
    ++t.work.silences;
  }
}

[[gnu::noinline]] void end_silence(Thread& t) {
  at::enableRecordFunction(true);
  t.silenced = false;
}

void listen_again(Thread& t) {
  t.inner = 0;
  if (t.silenced) {
    end_silence(t);
  }
}

// What recording an event cost, and not what it waited for.
int64_t record_cost(int64_t since) { return std::min(now_ns() - since, kLongestRecordNs); }

bool begins_anew(InWindow& seen, uint64_t window) {
  if (seen.window == window) {
    return false;
  }
  seen = {window, 0};
  return true;
}

// A number of ops, `every` on average.
uint32_t some_ops(Thread& t, uint32_t every) { return 1 + next_random(t) % (2 * every - 1); }

// While it is there, a mark is booked: what that takes in a window counts as the window's cost.
class MarkCost {
 public:
  explicit MarkCost(Thread& t) : t_(t), seen_(open_now.load(std::memory_order_relaxed) != 0) {
    if (seen_ && --t.until_mark_measured == 0) {
      t.until_mark_measured = kMeasured;
      since_ = now_ns();
    }
  }
  ~MarkCost() {
    if (!seen_) {
      return;
    }
    if (since_ != 0) {
      const int64_t took = std::min(now_ns() - since_, kLongestOpCostNs);
      t_.mark_ns += 0.1 * (double(took) - t_.mark_ns);
    }
    t_.work.op_ns += int64_t(t_.mark_ns);
    t_.has_work = true;
  }
  MarkCost(const MarkCost&) = delete;
  MarkCost& operator=(const MarkCost&) = delete;

 private:
  Thread& t_;
  const bool seen_;
  int64_t since_ = 0;
};

// A call begins that a window sees. What recording that has cost.
[[gnu::noinline]] int64_t begin_call(Thread& t, int64_t key, uint64_t seen_by) {
  if (!gpu().active.load(std::memory_order_relaxed)) {
    return 0;
  }
  const auto [device, is_known] = device_of(key);
  begins_anew(t.calls_in, seen_by);
  // What is called once and for long would mostly be missed.
  const uint32_t every = ++t.calls_in.n > kManyCalls && is_known ? kCallEvery : 1;
  if (every > 1 && next_random(t) % every != 0) {
    return 0;
  }
  const int64_t start = now_ns();
  if (device < 0 || start >= head_end.load()) {
    return 0;
  }
  int64_t first_op = kUnknownOp;
  {
    std::lock_guard<Mutex> lock(meter().mutex);
    const Line* line = booked_line_of(t);
    if (line != nullptr && line->timed && line->watched && line->seen_from == line->gap_start) {
      first_op = line->first_op;
    }
  }
  t.call = begin_span(device, key, seen_by, first_op, every);
  t.call_quiet = t.quiet_ns;
  const int64_t cost = record_cost(start);
  t.work.op_ns += cost;
  t.has_work = true;
  return cost;
}

// It has ended, after `ns`, and the gap after it has begun.
void end_call(Thread& t, int64_t ns) {
  const int64_t start = now_ns();
  end_span(std::exchange(t.call, {}), ns, t.quiet_ns - t.call_quiet, nullptr, 0);
  const int64_t cost = record_cost(start);
  t.work.op_ns += cost;
  t.has_work = true;
  std::lock_guard<Mutex> lock(meter().mutex);
  if (Line* line = booked_line_of(t)) {
    line->cost_ns += cost;
  }
}

// One op in so many is timed by the GPU, on average.
uint32_t timed_op_every(const Thread& t) {
  if (t.ops_in.n > kManyOps) {
    return kLaterOpEvery;
  }
  return gpu().ops_timed.load(std::memory_order_relaxed) < kFirstOps ? kFirstOpEvery : kOpEvery;
}

// The GPU times some of the ops that are seen, by chance.
void begin_op(Thread& t) {
  t.op = {};
  t.op_gpu_ns = 0;
  const uint64_t seen_by = open_now.load();
  if (seen_by == 0) {
    return;
  }
  if (begins_anew(t.ops_in, seen_by)) {
    t.until_timed = some_ops(t, timed_op_every(t));
  }
  if (--t.until_timed != 0) {
    return;
  }
  gpu().ops_timed.fetch_add(1, std::memory_order_relaxed);
  ++t.ops_in.n;
  const uint32_t every = timed_op_every(t);
  t.until_timed = some_ops(t, every);
  const int64_t start = now_ns();
  const int32_t device = op_device();
  if (device >= 0) {
    t.op = begin_span(device, 0, seen_by, kUnknownOp, every);
    t.op_gpu_ns = record_cost(start);
  }
}

// It ends; where it was not booked, for nothing.
class TimedOp {
 public:
  explicit TimedOp(Thread& t) : t_(t) {}
  ~TimedOp() { close(0, nullptr, 0); }
  TimedOp(const TimedOp&) = delete;
  TimedOp& operator=(const TimedOp&) = delete;

  void close(int64_t ns, const char* name, uint64_t cell) {
    if (t_.op.number == 0) {
      return;
    }
    const int64_t start = now_ns();
    end_span(std::exchange(t_.op, {}), ns, 0, name, cell);
    const int64_t cost = t_.op_gpu_ns + record_cost(start);
    t_.work.op_ns += cost;
    std::lock_guard<Mutex> lock(meter().mutex);
    if (Line* line = booked_line_of(t_)) {
      line->cost_ns += cost;
    }
  }

 private:
  Thread& t_;
};

// Is our part of what the next op costs measured. At first a window finds nothing in the caches.
// Then by chance: every 16th would always be the same of a loop's ops.
bool is_measured(Thread& t) {
  const uint64_t seen_by = open_now.load(std::memory_order_relaxed);
  if (t.measured_in != seen_by) {
    t.measured_in = seen_by;
    t.all_measured = kAllMeasured;
    t.until_events = std::min(t.until_events, some_ops(t, kEventsMeasured));
    t.events_in_a_row = 0;
  }
  if (t.all_measured > 0) {
    --t.all_measured;
    return true;
  }
  if (--t.until_measured > 0) {
    return false;
  }
  t.until_measured = some_ops(t, kMeasured);
  return true;
}

// An event as inside an op. How long it took; 0 if others would have seen it.
int64_t event_of_ours() {
  const int64_t start = now_ns();
  auto listening = only_ours();
  if (!listening) {
    return 0;
  }
  {
    at::RecordFunction event(std::move(*listening));
    event.before("");
  }
  return now_ns() - start;
}

// A node's name, put together as the autograd engine does. How long it took.
int64_t name_of_ours() {
  const int64_t start = now_ns();
  const std::string name = c10::str(kNodePrefix, c10::demangle(kNodeType));
  return now_ns() - start;
}

// What an event takes PyTorch, after the op that has just ended. How long finding out took. A
// silenced thread makes none, and an op that the GPU times would end later.
[[gnu::noinline]] int64_t measure_events(Thread& t, bool is_node) {
  const bool goes_on = ++t.events_in_a_row < kMeasuredInARow;
  t.until_events = goes_on ? some_ops(t, kEventsMeasured) : kNotMeasured;
  t.events_in_a_row = goes_on ? t.events_in_a_row : 0;
  if (t.silenced || t.op.number != 0) {
    return 0;
  }
  const int64_t start = now_ns();
  const int64_t clock_ns = now_ns() - start;
  const uint64_t events = t.work.events;
  const uint32_t inner = std::exchange(t.inner, 0);
  ++t.depth;
  const int64_t first_ns = event_of_ours(), second_ns = event_of_ours();
  --t.depth;
  t.inner = inner;
  t.work.events = events;
  if (first_ns > 0 && second_ns > 0) {
    const auto see = [clock_ns](double& mean, int64_t ns, double longest_ns) {
      // Reading the clock may have been held up, too.
      mean += kLately * (std::clamp(double(ns - clock_ns), 0.0, longest_ns) - mean);
    };
    see(t.warm_event_ns, second_ns, kLongestOpCostNs);
    see(t.event_ns, first_ns, kColdest * t.warm_event_ns);
    if (is_node) {
      see(t.name_ns, name_of_ours(), kLongestOpCostNs);
    }
  }
  return record_cost(start);
}

// What seeing an op has cost, on average over ops as it: before and after it, and inside.
struct Cost {
  int64_t outside_ns, inside_ns;
};

Cost cost_of(const Thread& t, bool is_node) {
  const double silence_ns = t.silenced ? kSilenceShare * t.warm_event_ns : 0;
  const double name_ns = is_node ? kNameShare * t.name_ns : 0;
  const double inner_ns = kInnerShare * t.warm_event_ns * t.inner;
  const double outside_ns =
      t.own_ns + name_ns + kOpShare * t.event_ns + (1 - kSilenceInside) * silence_ns;
  return {.outside_ns = int64_t(outside_ns),
          .inside_ns = int64_t(inner_ns + kSilenceInside * silence_ns)};
}

std::unique_ptr<at::ObserverContext> on_start(const at::RecordFunction& event) {
  Thread& t = this_thread();
  ++t.depth;
  ++t.work.events;
  t.has_work = true;
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
  t.measures = is_measured(t);
  if (gpu().active.load(std::memory_order_relaxed)) {
    begin_op(t);
  }
  const int64_t start = t.measures ? now_ns() : 0;
  t.is_compilation = is_compilation(name);
  if (t.from_python.function != kNoFunction) {
    see_op_of_call(t, op_name(name));
  }
  ++t.work.ops;
  t.op_depth = t.depth;
  t.region_in_op = 0;
  t.op_collected = collected_ns.load(std::memory_order_relaxed);
  t.op_start = now_ns();
  t.measured_ns = t.op_start - start;
  t.seen_by = open_now.load();
  t.lead_end = lead_end.load(std::memory_order_relaxed);
  if (t.op_start >= head_end.load()) {
    t.seen_by = 0;
  }
  return nullptr;
}

// Where an op is booked. As soon as `pass` is another, something else is kept there.
struct Booking {
  Ops* ops = nullptr;
  double times = 1;  // it weighs
  const uint64_t* pass = nullptr;
  uint64_t was = 0;
  uint32_t cell = 0, slot = 0;
};

// Takes a sample of the line that the op is on.
void sample(Thread& t, Meter& m, const char* name, const Booking& booking, int64_t ns,
            double weight) {
  ++t.quiet;
  const int64_t since = now_ns(), collected = collected_ns.load(std::memory_order_relaxed);
  // Mostly, Ctrl-C comes while an op computes: then it is for the program, and nothing is
  // sampled.
  const int gil = PyGILState_Ensure();
  decltype(m.sampler) sampler;
  bool is_asked;
  {
    // It may have gone while this thread waited for the interpreter.
    std::lock_guard<Mutex> lock(m.mutex);
    sampler = m.sampler;
    is_asked = m.sample_each;
  }
  int64_t line = -1;
  if (sampler != nullptr) {
    line = is_asked ? kUnknownLine : known_line();
    if (line == kUnknownLine) {
      line = PyOS_InterruptOccurred() ? -1 : sampler(name);
      if (line < 0) {
        PyErr_SetInterruptEx(SIGINT);
      }
    }
  }
  PyGILState_Release(gil);
  --t.quiet;
  std::lock_guard<Mutex> lock(m.mutex);
  Line* owner = booked_line_of(t);
  if (line >= 0 && *booking.pass == booking.was) {
    const Sampled one{weight, weight * double(ns), weight * weight};
    booking.ops->samples[uint64_t(booking.slot) << 32 | uint32_t(line)].add(one, booking.times);
    Cell& cell = m.cells.at(booking.cell);
    cell.line = cell.line == kNoLine || cell.line == line ? int32_t(line) : kSeveralLines;
  }
  const int64_t took =
      now_ns() - since - (collected_ns.load(std::memory_order_relaxed) - collected);
  t.work.sample_ns += std::clamp<int64_t>(took, 0, kLongestSampleNs);
  ++t.work.samples;
  if (owner != nullptr) {
    // All of it: were gaps with samples longer, they would be of another kind than those without.
    owner->cost_ns += took;
  }
}

// Did the op begin before the slice that its window sees of the gap under way.
bool is_in_lead(const Thread& t, const Line& line) {
  return !line.watched && t.op_start < t.lead_end && line.gap_start < t.lead_end - kLeadNs;
}

// What an op of the gap under way belongs to: no ops if to nothing that is seen.
Booking seen_part(Line& line, uint64_t seen_by, int64_t ns) {
  if (seen_by != 0 && seen_by == open_now.load() && line.seen_from != 0) {
    return {&line.head[set_of(seen_by)]};
  }
  if (line.watched) {
    return {&line.tail};
  }
  if (seen_by == 0) {
    return {};
  }
  // It began in a window that has closed meanwhile, and that may have been weighed.
  const Set set = set_of(seen_by);
  const auto add_to = [ns](Sums& sums, Ops& ops, double weight) -> Booking {
    sums.add(sums.window, 0, 0, 1, double(ns), weight);
    return {&ops, weight};
  };
  if (line.slices[set].seen.n > 0) {
    return add_to(line.slices[set], line.head[set], 1);
  }
  if (set == kRandom && line.weighed.sums.seen.n > 0) {
    return add_to(line.weighed.sums, line.weighed.ops, line.weight);
  }
  return {};
}

void on_end(const at::RecordFunction& event, at::ObserverContext*) {
  Thread& t = this_thread();
  if (t.depth == 0) {
    return;  // it began on another thread
  }
  if (t.depth-- != t.op_depth) {
    return;
  }
  const int64_t end = now_ns();
  const char* event_name = event.name();
  const char* op = op_name(event_name);
  const bool is_node = op != event_name;
  const int64_t measuring_ns = --t.until_events == 0 ? measure_events(t, is_node) : 0;
  TimedOp timed(t);
  t.op_depth = 0;
  const auto [outside_ns, inside_ns] = cost_of(t, is_node);
  const int64_t cost_ns = outside_ns + inside_ns + measuring_ns;
  t.work.op_ns += cost_ns - kEventNs * (1 + t.inner);
  const bool was_silenced = t.silenced;
  listen_again(t);
  const bool was_late = was_silenced || measuring_ns > 0;
  const int64_t booking_since = t.measures && was_late ? now_ns() : end;
  if (t.work.events >= kEventsAtOnce) {
    flush_work(t);
  }
  if (t.is_compilation) {
    return;
  }
  const int64_t collected = collected_ns.load(std::memory_order_relaxed) - t.op_collected;
  const int64_t ns =
      std::max<int64_t>(0, end - t.op_start - t.region_in_op - collected - inside_ns);
  const char* name;
  uint64_t cell_number;
  bool is_first;
  Booking booking;
  double weight = 0;  // 0: no sample
  Meter& m = meter();
  {
    std::lock_guard<Mutex> lock(m.mutex);
    Line* line = booked_line_of(t);
    if (line != nullptr && line->from == nullptr) {
      line = nullptr;  // it has no marks yet
    }
    if (t.seen_by == 0 && !(line != nullptr && line->watched)) {
      return;
    }
    if (line != nullptr && t.seen_by != 0) {
      if (is_in_lead(t, *line)) {
        line->cost_ns += cost_ns;
        return;
      }
      if (line->leads_in && t.op_start >= line->seen_from) {
        end_lead_in(*line);
      }
    }
    booking =
        line != nullptr ? seen_part(*line, t.seen_by, ns) : Booking{&m.loose[set_of(t.seen_by)]};
    if (booking.ops == nullptr) {
      return;
    }
    booking.pass = line != nullptr ? &line->pass : &m.clears;
    booking.was = *booking.pass;
    const uint32_t index = find_cell(m, t, op, line ? line->from->mark : nullptr,
                                     line ? booking.was : 0, line != nullptr && line->watched);
    if (index == kNoCell) {
      return;
    }
    if (line != nullptr) {
      (t.seen_by != 0 ? line->cost_ns : line->tail_cost_ns) += cost_ns;
      line->first_op = line->first_op == 0 ? t.op_start : line->first_op;
    }
    Cell& cell = m.cells[index];
    name = cell.name;
    if (cell.function != t.from_python.function && is_caller_known(t)) {
      cell.function = t.from_python.function;
      m.callers[name].insert(t.from_python.function);
    }
    is_first = cell.count == 1;
    cell_number = cell_id(cell.mark, cell.slot);
    booking.cell = index;
    booking.slot = cell.slot;
    const double times = booking.times;
    booking.ops->ops += times;
    booking.ops->op_ns += times * double(ns);
    if (line != nullptr) {
      const int64_t gone_on_ns = own_ns_of(*line, t.op_start) + cost_ns;
      Stages::Stage& stage = line->stages.at(stage_of(gone_on_ns));
      stage.ops += 1;
      stage.op_ns += double(ns);
    }
    booking.ops->add(booking.slot, times, times * double(ns));
    if (m.sampler) {
      if (cell.count == 1 || m.sample_each ||
          (line != nullptr && take_wanted(*line->from, cell.slot))) {
        weight = 1;
      } else {
        double every = kThinning * double(cell.count);
        if (cell.line == kSeveralLines) {
          every = std::min(every, kOfSeveral);
        }
        weight = double(next_random(t)) * every < 4294967296.0 ? every : 0;
      }
    }
  }
  const int64_t booked = t.measures ? now_ns() : 0;
  // The first may have loaded its kernel, which the others don't; a graph's call is no op's time.
  timed.close(ns, is_first || t.region_in_op > 0 ? nullptr : name, cell_number);
  if (t.measures) {
    const int64_t took = t.measured_ns + booked - booking_since;
    t.own_ns += kLately * (double(std::min(took, kLongestOpCostNs)) - t.own_ns);
  }
  // While an op's exception passes through here, Python has it: nothing of Python's may be called.
  if (weight > 0 && std::uncaught_exceptions() == 0) {
    sample(t, m, name, booking, ns, weight);
  }
}

}  // namespace
