// The op meter's native part: where a program's time goes, and which ops it runs outside compiled
// regions.
//
// Marks are points of a thread's run that cost next to nothing to see: a region begins or ends, an
// optimizer steps, a DataLoader is asked for data. What runs from one mark to the next is a gap.
// While no window is open a thread notes the marks of its regions, and what they mean is booked
// later, for many at once. All marks are seen, so that the number and the time of the gaps of each
// kind (from which mark to which, after which others, how long) are exact. What ops are in a gap is
// seen in windows only, by a global RecordFunction callback that is there as long as a window is
// open.
//
// A window watches a gap whole if it began before the window's end, however long it goes on, and
// so sees each gap with the same chance. A gap that was under way when the window opened is no use
// as a whole; if it turns out to be long, what was seen of it counts as a slice of time.
//
// Plain C functions, called with ctypes. Only ATen/record_function.h is included: it builds in
// seconds, and without pybind11.

#include "_op_count.h"
#include "_op_rows.h"
#include "_op_windows.h"

extern "C" {

// The main thread's first gap begins at `since_ns` of CLOCK_MONOTONIC; what was before is left out,
// but for `compile_ns` that it has spent in compilations.
void op_meter_begin(int64_t since_ns, int64_t compile_ns) {
  Meter& m = meter();
  std::lock_guard<std::mutex> window_lock(window_mutex);
  {
    const Booked lock(m);
    if (m.main == nullptr) {
      m.main = new_line(m, true);
    }
    last_line = m.main;
    clear_loose(m);
    opened_ns = std::max(opened_ns, since_ns);
    drop_gap(*m.main);
    begin_gap(*m.main, mark_of(m, 0, 0, false), since_ns);
    m.main->spent.compile_ns += compile_ns;
  }
  forget_calls();
  if (events_handle == at::INVALID_CALLBACK_HANDLE) {
    events_handle = at::addGlobalCallback(at::RecordFunctionCallback(on_event_start, on_event_end)
                                              .scopes({at::RecordScope::USER_SCOPE}));
  }
}

// A window whose gaps stand for themselves, until `op_meter_finish`. One that chance opened ends;
// one that is such a window goes on, and the program's loop is looked for from here.
void op_meter_open(int32_t whole) {
  std::lock_guard<std::mutex> lock(window_mutex);
  if (head_end != kNever) {
    close_window();
  }
  open_window(kCertain, kNever, Whole(whole));
  const Booked booked(meter());
  first_mark = marks_seen;
}

// The main thread's program is over. What is left, such as torch's own end, is another gap, and
// seen.
void op_meter_exit() {
  std::lock_guard<std::mutex> lock(window_mutex);
  if (head_end != kNever) {
    close_window();
  }
  Meter& m = meter();
  {
    const Booked booked(m);
    const int32_t number = event_number(m, "exit");
    if (m.main == nullptr || m.main->from == nullptr || number == 0) {
      return;
    }
    const int64_t now = now_ns();
    end_gap(*m.main, 0, now);
    begin_gap(*m.main, mark_of(m, m.main->graph, 2 * number + 1, false), now);
  }
  open_window(kCertain, kNever, kMainGap);
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
// `longest_ns` at most. Nothing where another one is open. The one before it stands for so much of
// the run. See `wait_and_look` for the rest.
void op_meter_window(int64_t wait_ns, int64_t window_ns, int64_t stood_for_ns, int64_t longest_ns,
                     int64_t look_ns, int64_t most_ns, uint64_t awake) {
  std::unique_lock<std::mutex> lock(window_mutex);
  {
    Meter& m = meter();
    const Booked booked(m);
    weigh(m, double(stood_for_ns));
  }
  if (wait_and_look(lock, now_ns() + wait_ns, look_ns, most_ns, longest_ns, awake)) {
    run_by_chance(lock, window_ns, longest_ns, most_ns, awake);
  }
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
  Thread& t = this_thread();
  if (t.regions++ > 0) {
    return;
  }
  ++op_meter_for_calls.aside;
  if (is_noted_only(t)) {
    t.region_start = now_ns();
    note(t, {t.region_start, -1, key});
    return;
  }
  listen_again(t);
  const uint64_t seen_by = open_now.load(std::memory_order_relaxed);
  const int64_t cost_ns = seen_by == 0 ? 0 : begin_call(t, key, seen_by);
  if (t.has_work) {
    flush_work(t);
  }
  Meter& m = meter();
  bool last, is_crowded;
  {
    const MarkCost cost(t);
    std::lock_guard<Mutex> lock(m.mutex);
    Line& line = *line_for_mark(t);
    line.cost_ns += cost_ns;
    t.region_start = now_ns();
    last = book_begin(m, line, key, t.call.number != 0, t.region_start);
    is_crowded = size_t(key) < m.crowded.size() && m.crowded[key];
  }
  if (last) {
    close_ended_window();
  }
  if (is_crowded && t.op_depth == 0) {
    silence(t);
  }
}

void op_meter_leave(int64_t key) {
  Thread& t = this_thread();
  if (t.regions == 0) {
    return;
  }
  if (t.regions == 1 && t.op_depth == 0 && is_noted_only(t)) {
    t.regions = 0;
    --op_meter_for_calls.aside;
    const int64_t now = now_ns();
    const int64_t ns = std::max<int64_t>(0, now - t.region_start);
    t.region_in_op += ns;
    note(t, {now, ns, key});
    return;
  }
  Meter& m = meter();
  const bool was_silenced = t.silenced;
  if (--t.regions == 0) {
    --op_meter_for_calls.aside;
  }
  if (t.regions == 0 && t.op_depth == 0) {
    t.work.op_ns += t.silenced ? int64_t(kSilenceShare * t.warm_event_ns) : 0;
    listen_again(t);
  }
  int64_t ns;
  {
    const MarkCost cost(t);
    std::lock_guard<Mutex> lock(m.mutex);
    if (t.regions > 0) {
      region_of(m, key).nested += 1;
      return;
    }
    const int64_t now = now_ns();
    ns = now - t.region_start;
    t.region_in_op += ns;
    book_call(m, *line_for_mark(t), key, ns, now);
    m.crowded[key] = m.crowded[key] || (was_silenced && t.op_depth == 0);
  }
  if (t.call.number != 0) {
    end_call(t, ns);
  }
}

// What this thread runs from here to the matching call with -1 is not the program's. `compiles`:
// it is a compilation, which may have begun before this library was there, at `since_ns`.
void op_meter_quiet(int32_t change, int32_t compiles, int64_t since_ns) {
  Thread& t = this_thread();
  Meter& m = meter();
  if (change < 0 && t.quiet == 0) {
    return;  // it began before a fork
  }
  if (t.quiet == 0) {
    // A graph can be compiled inside an op. What is counted for it needs events.
    listen_again(t);
    t.quiet_start = since_ns > 0 ? since_ns : now_ns();
    std::lock_guard<Mutex> lock(m.mutex);
    Line* line = t.quiet_line = compiles ? line_for_mark(t) : booked_line_of(t);
    if (line != nullptr && line->quiet++ == 0) {
      line->quiet_since = t.quiet_start;
      line->quiet_collected = since_ns > 0 ? line->collected : collected_ns.load();
      line->quiet_compiles = compiles;
    }
  }
  t.quiet += change;
  op_meter_for_calls.aside += change;
  if (t.quiet == 0) {
    const int64_t now = now_ns();
    t.quiet_ns += now - t.quiet_start;
    t.region_start += now - t.quiet_start;
    t.op_start += now - t.quiet_start;
    t.inner = 0;
    std::lock_guard<Mutex> lock(m.mutex);
    Line* line = t.quiet_line;
    if (line != nullptr && line->quiet > 0) {
      book_notes(*line);
      settle_quiet(*line, now);
      --line->quiet;
    }
  }
}

// A collection of the whole heap is over.
void op_meter_collected(int64_t ns) {
  const Booked lock(meter());
  collected_ns += ns;
}

// `each`: every op, instead of fewer and fewer, and all by asking; a null sampler takes none.
void op_meter_sample(int64_t (*sampler)(const char*), int32_t each) {
  Meter& m = meter();
  std::lock_guard<Mutex> lock(m.mutex);
  m.sampler = sampler;
  m.sample_each = each;
}

// Returns the number of the backward that a thread works for.
void op_meter_current_backward(PyObject* function) {
  Py_IncRef(function);
  Py_DecRef(std::exchange(known_lines().current_backward, function));
}

// Frames of this code are no user's: the line is that of the one that called it.
void op_meter_passed(PyObject* code) {
  if (known_lines().passed.insert(code).second) {
    Py_IncRef(code);
  }
}

void op_meter_line(PyObject* code, int32_t offset, int64_t line) {
  if (known_lines().numbers.insert_or_assign({code, offset}, line).second) {
    Py_IncRef(code);
  }
}

void op_meter_backward_line(int64_t backward, int64_t line) {
  auto& lines = known_lines().backwards;
  if (lines.size() >= kMaxBackwards) {
    lines.clear();
  }
  lines[backward] = line;
}

void op_meter_work(Work* out) {
  flush_work(this_thread());
  const Booked lock(meter());
  std::lock_guard<std::mutex> work_lock(work_mutex);
  *out = work;
  if (open_now) {
    out->open_ns += now_ns() - opened_ns;
  }
  out->marks = marks_seen;
  out->novel = novel_mark;
  out->first = first_mark;
  out->unlike_ns = unlike_ns;
}

// Forgets all, but for the numbers of events. Gaps that are under way begin now.
void op_meter_clear() {
  clear_lines();  // what frees code may run more of Python's
  Meter& m = meter();
  const Booked lock(m);
  m.unweighed.clear();
  m.index.clear();
  m.cells.clear();
  m.callers.clear();
  forget_calls();
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
  m.crowded.clear();
  clear_loose(m);
  m.lost = 0;
  m.others_before = Spent();
  for (AtOnce& at_once : m.at_once) {
    at_once.more_ns = 0;
  }
  ++m.clears;
  clear_gpu();
  const int64_t now = now_ns();
  for (Line* line : m.lines) {
    const bool in_gap = line->from != nullptr;
    const bool main = line->main;
    if (line->watched) {
      watching.fetch_sub(1);
    }
    const uint32_t quiet = line->quiet;
    const bool quiet_compiles = line->quiet_compiles;
    line->start_over();
    line->main = main;
    line->quiet = quiet;
    line->quiet_since = now;
    line->quiet_compiles = quiet_compiles;
    if (in_gap) {
      begin_gap(*line, mark_of(m, 0, 0, false), now);
    }
  }
  marks_seen = novel_mark = first_mark = 0;
  unlike_ns = 0;
  chance = {};
}

// In a forked child, where only this thread exists.
void op_meter_after_fork() {
  Meter& m = meter();
  new (&window_changed) std::condition_variable;  // other threads may have waited for it
  listen_again(this_thread());
  this_thread() = Thread();
  op_meter_for_calls.aside = 0;
  if (handle != at::INVALID_CALLBACK_HANDLE) {
    at::removeCallback(handle);
    handle = at::INVALID_CALLBACK_HANDLE;
  }
  open_now = 0;
  head_end = 0;
  watching = 0;
  m.lines.clear();  // those of other threads are lost, and so is this one's, if another was main
  m.main = nullptr;
  last_line = nullptr;
  m.at_once = {};
  forget_gpus(m);
  op_meter_clear();
}

}  // extern "C"
