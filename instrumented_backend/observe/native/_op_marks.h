// Marks, and the gaps between them: where they begin and end, and of which kind they are.

#pragma once

#include "_op_state.h"

namespace {

Mark* new_mark(Meter& m, int64_t graph, int32_t event, bool in_data) {
  return &m.marks.emplace_back(Mark{int32_t(m.marks.size()), graph, event, in_data});
}

// Where a gap after an event begins; the call's end itself is event 0. Once there are too many, all
// that would be new are one.
[[gnu::noinline]] Mark* other_mark_of(Meter& m, int64_t graph, int32_t event, bool in_data) {
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

Mark* mark_of(Meter& m, int64_t graph, int32_t event, bool in_data) {
  if (event == 0 && !in_data && size_t(graph) < m.by_graph.size() && m.by_graph[graph] != nullptr) {
    return m.by_graph[graph];
  }
  return other_mark_of(m, graph, event, in_data);
}

[[gnu::noinline]] Edge* other_edge_to(Position& position, int64_t to) {
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

Edge* edge_to(Position& position, int64_t to) {
  Edge* last = position.last;
  return last != nullptr && last->to == to ? last : other_edge_to(position, to);
}

// Where a gap begins that comes after `mark`. Once there are too many positions, those that would
// be new are told apart by their mark only.
[[gnu::noinline]] Position* other_position_after(Meter& m, Line& line, Mark* mark) {
  Position* position;
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
    position = &m.positions.emplace_back(Position{.mark = mark, .history = history});
    m.by_history.emplace(history, position);
  } else {
    position = found->second;
  }
  if (line.edge != nullptr) {
    line.edge->after = position;
  }
  return position;
}

Position* position_after(Meter& m, Line& line, Mark* mark) {
  Position* position = line.edge != nullptr ? line.edge->after : nullptr;
  return position != nullptr && position->mark == mark ? position
                                                       : other_position_after(m, line, mark);
}

Region& region_of(Meter& m, int64_t key) {
  if (size_t(key) >= m.regions.size()) {
    m.regions.resize(key + 1);
    m.crowded.resize(key + 1);
  }
  return m.regions[key];
}

int octave_of(int64_t ns) { return ns < 2 ? 0 : std::min(kOctaves - 1, 63 - __builtin_clzll(ns)); }

// Cells of that kind of gap whose line is not known ask for a sample of their next op there.
void ask_for_lines(Meter& m, Position& position, const Tally& tally, const Tally* before) {
  const double gaps = tally.sums.gaps + (before != nullptr ? before->sums.gaps : 0);
  if (m.sampler == nullptr || gaps > kAsks) {
    return;
  }
  std::vector<bool> known(tally.ops.cells.size());
  for (const Tally* each : {&tally, before}) {
    for (const auto& [place, sums] : each != nullptr ? each->ops.samples : Samples()) {
      if ((place >> 32) < known.size()) {
        known[place >> 32] = true;
      }
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
  // Collections in that time are apart with it, and not once more.
  const int64_t collected = collected_ns.load(std::memory_order_relaxed);
  line.collected += collected - std::exchange(line.quiet_collected, collected);
  line.quiet_since = now;
}

// Of the gap under way, what is none of its time.
int64_t apart_of(const Line& line) {
  return line.apart_ns + collected_ns.load(std::memory_order_relaxed) - line.collected;
}

// How long the gap under way had gone on at that moment, in its own time.
int64_t own_ns_of(const Line& line, int64_t moment) {
  const int64_t cost_ns = line.cost_ns + line.tail_cost_ns;
  return std::max<int64_t>(0, moment - line.gap_start - apart_of(line) - cost_ns);
}

// Ops of the gap under way that tell nothing, each of which weighs so much: the next of their cells
// may be the first again, which is sampled.
void forget(const Line& line, Ops& ops, double weight = 1) {
  Meter& m = meter();
  for (const uint32_t slot : ops.touched) {
    const int64_t count = std::llround(ops.cells[slot].count / weight);
    m.cells[line.position->mark->cells[slot]].count -= count;
  }
  ops.clear();
}

// What a window has seen of a gap that it does not see to its end: of one that is watched, all so
// far, and of the others what was before that moment.
void see_stages(Line& line, int64_t until) {
  const int64_t tail_cost_ns = line.watched ? 0 : line.tail_cost_ns;  // from before
  const int64_t from_ns =
      line.seen_from - line.gap_start - line.seen_apart - line.seen_cost - tail_cost_ns;
  until = line.watched ? now_ns() : until;
  settle_quiet(line, until);
  line.stages.see(double(std::max<int64_t>(0, from_ns)), double(own_ns_of(line, until)));
}

// A slice begins here: what seeing ops has cost before is none of it.
void end_lead_in(Line& line) {
  line.seen_cost = line.cost_ns;
  line.leads_in = false;
}

// A window ends, or the gap under way does, of which the window has seen a slice.
void keep_slice(Line& line, int64_t until) {
  if (line.leads_in) {
    end_lead_in(line);
  }
  settle_quiet(line, until);
  const int64_t ns =
      until - line.seen_from - (apart_of(line) - line.seen_apart) - (line.cost_ns - line.seen_cost);
  const Ops& head = line.head[window_set];
  Sums& sums = line.slices[window_set];
  if (ns > 0) {
    const double ops = head.ops - sums.seen.ops, op_ns = head.op_ns - sums.seen.op_ns;
    sums.add(window, 1e-9 * double(ns), double(ns), ops, op_ns);
  }
  chance.cost_ns += window_set == kRandom && line.main ? double(line.cost_ns - line.seen_cost) : 0;
  see_stages(line, until);
  forget(line, line.tail);
  if (line.watched) {
    line.watched = false;
    watching.fetch_sub(1, std::memory_order_relaxed);
  }
  line.seen_from = 0;
}

// Books what windows saw of a gap, by its stages.
void keep_stages(Observed& observed, const Line& line) {
  if (!observed.stages) {
    observed.stages = std::make_unique<std::array<Sums, kStages>>();
  }
  for (size_t i = 0; i < line.stages.used; ++i) {
    const Stages::Stage& stage = line.stages.stages[i];
    if (stage.ns > 0) {
      (*observed.stages)[i].add(line.pass, 1e-9 * stage.ns, stage.ns, stage.ops, stage.op_ns);
    }
  }
}

// What the window of chance that is open sees of gaps of that length.
Tally& unweighed_of(Meter& m, Edge& edge, Length& length) {
  Observed& observed = length.seen();
  if (!observed.unweighed) {
    observed.unweighed = std::make_unique<Tally>();
    m.unweighed.push_back({&edge, &observed, length.octave >= kLong});
  }
  return *observed.unweighed;
}

// What it saw of a gap that has ended meanwhile, in a slice.
Tally& unweighed_slice_of(Meter& m, Observed& observed) {
  if (!observed.unweighed_slices) {
    observed.unweighed_slices = std::make_unique<Tally>();
    m.unweighed.push_back({nullptr, &observed, true});
  }
  return *observed.unweighed_slices;
}

// Books what the last of chance's windows saw, which stands for so much of the run; 0: for as much
// as others do. With the mutex.
void weigh(Meter& m, double stands_for_ns) {
  const double window_ns = chance.window_ns;
  if (window_ns <= 0) {
    return;
  }
  const double weight = chance.weigh(stands_for_ns);
  // Slices begin later than their windows.
  const double slice_weight = weight * window_ns / std::max(window_ns / 4, window_ns - kLeadNs);
  for (const auto& [edge, observed, is_long] : m.unweighed) {
    if (edge == nullptr) {
      const std::unique_ptr<Tally> slice = std::move(observed->unweighed_slices);
      observed->slices[kRandom].add_window(*slice, slice_weight);
      continue;
    }
    const std::unique_ptr<Tally> tally = std::move(observed->unweighed);
    observed->whole[kRandom].add_window(*tally, weight);
    if (!is_long) {
      edge->by_chance.add_window(tally->sums, weight);
    }
  }
  m.unweighed.clear();
  for (Line* line : m.lines) {
    Sums& slice = line->slices[kRandom];
    if (slice.seen.n > 0) {
      line->weighed.sums.add_window(slice, slice_weight);
      line->weighed.ops.add(line->head[kRandom], slice_weight);
      line->weight = slice_weight;
      slice = Sums();
      line->head[kRandom].clear();
    }
  }
}

// Before anything is handed out: all but what an open window of chance has seen.
void weigh_closed(Meter& m) {
  if (open_now.load() == 0 || window_set != kRandom) {
    weigh(m, 0);
  }
}

// Books a gap that ends now, and of which a window has seen all or a part. What `end_gap` returns.
// `cost_ns` of its time is ours.
[[gnu::noinline]] bool end_seen_gap(Line& line, Position& position, bool is_new, Length& length,
                                    int64_t ns, int64_t cost_ns, int64_t now) {
  Edge& edge = *line.edge;
  const double own_ns = double(std::max<int64_t>(1, ns - cost_ns));
  const int64_t end = head_end.load(std::memory_order_relaxed);
  bool last = false;
  if (line.watched) {
    // Then there is nothing else of it.
    line.watched = false;
    // By the clock as it is now: the gap may have ended before the window did, and be booked only
    // after who ends that has found it under way. One of the two sees what the other did.
    last = watching.fetch_sub(1) == 1 && now_ns() >= head_end.load();
    Ops& ops = line.head[window_set];
    ops.add(line.tail);
    const bool is_first = is_new && window_set == kCertain;
    if (is_first) {
      edge.first_octave = length.octave;
      edge.first = std::make_unique<Tally>();
      line.stages.clear();
    } else {
      line.stages.see(0, own_ns);
    }
    Tally& known = is_first ? *edge.first : length.seen().whole[window_set];
    const bool by_chance = window_set == kRandom;
    Tally& tally = by_chance ? unweighed_of(meter(), edge, length) : known;
    tally.sums.add_gap(window, own_ns, ops.ops, ops.op_ns);
    tally.ops.add(ops);
    chance.cost_ns += by_chance && line.main ? double(cost_ns) : 0;
    if (!is_first) {
      ask_for_lines(meter(), position, tally, by_chance ? &known : nullptr);
    }
  } else {
    if (line.seen_from != 0) {
      keep_slice(line, std::min(now, end));
    }
    for (int set = 0; set < kSets; ++set) {
      if (length.octave >= (set == kCertain ? kUnlike : kLong) && line.slices[set].seen.n > 0) {
        Observed& observed = length.seen();
        if (set == kRandom) {
          Tally& tally = unweighed_slice_of(meter(), observed);
          tally.sums.add_window(line.slices[set], 1);
          tally.ops.add(line.head[set]);
        } else {
          observed.slices[set].sums.add(line.slices[set]);
          observed.slices[set].ops.add(line.head[set]);
        }
      } else {
        forget(line, line.head[set]);
      }
    }
    if (length.octave < kLong) {
      forget(line, line.weighed.ops, line.weight);
    } else if (line.weighed.sums.seen.n > 0) {
      length.seen().slices[kRandom].add(line.weighed);
    }
    const Seen& seen = line.slices[kCertain].seen;
    const bool to_end = line.pass == ends_with.load(std::memory_order_relaxed);
    if (length.octave >= kUnlike && seen.ns > std::min(kTellsNs, own_ns / 16)) {
      const auto [all, had_ops] = line.stages.whole(own_ns);
      const double op_ns = std::min(own_ns, all.op_ns);  // an op may go on after its slice
      Observed& observed = length.seen();
      observed.looked.add_gap(window, own_ns, all.ops, op_ns);
      if (had_ops) {
        observed.met.add_gap(window, own_ns, all.ops, op_ns);
        if (to_end && seen.ops > kEnded * all.ops) {
          observed.ended.add_gap(window, own_ns, all.ops, op_ns);
        }
      }
    }
    if (to_end) {
      head_end = std::min(now, end);
      last = watching.load(std::memory_order_relaxed) == 0;
    }
  }
  if (length.octave >= kUnlike) {
    keep_stages(length.seen(), line);
  }
  line.tail.clear();
  line.weighed.clear();
  for (int set = 0; set < kSets; ++set) {
    line.head[set].clear();
    line.slices[set] = Sums();
  }
  line.stages.clear();
  line.seen_from = 0;
  line.was_seen = false;
  return last;
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
  const int64_t cost_ns = std::min(line.cost_ns + line.tail_cost_ns, ns);
  const int octave = octave_of(ns - cost_ns);
  Edge* edge = line.edge = edge_to(*position, to);
  const bool is_new = edge->usual.octave < 0;
  Length& length = edge->length(octave);
  length.population.n[!line.main] += 1;
  length.population.ns[!line.main] += ns;
  length.population.cost_ns += cost_ns;
  return line.was_seen && end_seen_gap(line, *position, is_new, length, ns, cost_ns, now);
}

void begin_gap_at(Line& line, Position* position, int64_t now) {
  line.from = line.position = position;
  line.gap_start = now;
  line.apart_ns = line.cost_ns = line.tail_cost_ns = line.first_op = 0;
  line.collected = line.quiet_collected = collected_ns.load(std::memory_order_relaxed);
  line.pass = passes.fetch_add(1, std::memory_order_relaxed);
  if (now < head_end.load(std::memory_order_relaxed)) {
    line.watched = line.was_seen = true;
    line.seen_from = now;
    line.seen_apart = line.seen_cost = 0;
    watching.fetch_add(1, std::memory_order_relaxed);
  }
}

void begin_gap(Line& line, Mark* mark, int64_t now) {
  end_gap(line, 0, now);  // of a thread that shares the line
  begin_gap_at(line, position_after(meter(), line, mark), now);
}

// A call of a region begins, or ends.
void count_at_once(Meter& m, int64_t key, int64_t by, int64_t now) {
  const int32_t device = size_t(key) < m.gpus.size() ? m.gpus[key] : -1;
  if (device >= 0) {
    m.at_once[device].change(by, now);
  }
}

// A call of a graph begins, which the GPU times or not. What `end_gap` returns.
bool book_begin(Meter& m, Line& line, int64_t key, bool timed, int64_t now) {
  line.timed = timed;
  line.in_call = true;
  count_at_once(m, key, 1, now);
  return end_gap(line, key, now);
}

// A call of a graph has ended, after `ns`, and a gap begins.
void book_call(Meter& m, Line& line, int64_t key, int64_t ns, int64_t now) {
  Region& region = region_of(m, key);
  region.calls += 1;
  region.ns += ns;
  region.longest_ns = std::max(region.longest_ns, ns);
  count_at_once(m, key, -1, now);
  line.spent.captured_ns += ns;
  line.graph = key;
  line.in_call = false;
  if (std::exchange(line.untimed_call, false)) {
    untimed_calls.fetch_sub(1, std::memory_order_relaxed);
  }
  begin_gap(line, mark_of(m, key, 0, line.in_data > 0), now);
}

// Books what its thread has noted until a moment.
void book_notes_until(Meter& m, Line& line, int64_t until) {
  Notes::Note note;
  while (line.notes->take_until(until, note)) {
    if (note.ns < 0) {
      book_begin(m, line, note.key, false, note.at_ns);
    } else {
      book_call(m, line, note.key, note.ns, note.at_ns);
    }
  }
}

// Books what all threads have noted, in the order in which it was: so calls at once are told.
void book_all_notes(Meter& m) {
  while (true) {
    Line* earliest = nullptr;
    int64_t at = kNever, until = kNever;  // of the earliest, and of the next
    for (Line* line : m.lines) {
      const int64_t noted = line->notes->next_ns();
      until = std::min(until, std::max(at, noted));
      if (noted < at) {
        earliest = line;
        at = noted;
      }
    }
    if (earliest == nullptr) {
      return;
    }
    book_notes_until(m, *earliest, until);
  }
}

// Books what its thread has noted, which comes before all else that is to be booked there.
void book_notes(Line& line) {
  Meter& m = meter();
  if (m.gpus.empty() || m.lines.size() == 1) {
    book_notes_until(m, line, kNever);
  } else {
    book_all_notes(m);
  }
}

// While it is there, the meter's mutex is held; all that was noted before is booked.
class Booked {
 public:
  explicit Booked(Meter& m) : lock_(m.mutex) { book_all_notes(m); }

 private:
  const std::lock_guard<Mutex> lock_;
};

// As `line_of`, with the mutex: what was noted of it is booked.
Line* booked_line_of(Thread& t) {
  Line* line = line_of(t);
  if (line != nullptr) {
    book_notes(*line);
  }
  return line;
}

// The gap under way is not to be counted.
void drop_gap(Line& line) {
  if (line.watched) {
    watching.fetch_sub(1, std::memory_order_relaxed);
  }
  const bool main = line.main;
  const Spent spent = line.spent;
  line.start_over();
  line.main = main;
  line.spent = spent;
}

// Visits all that is known of the lengths of gaps after a mark.
template <typename Visit>
void each_length_after(const Meter& m, const Mark* mark, Visit visit) {
  for (const Position& position : m.positions) {
    const Edge* edge = position.mark == mark ? position.edges : nullptr;
    for (; edge != nullptr; edge = edge->next) {
      visit(*edge, edge->usual);
      for (const Length& length : edge->others) {
        visit(*edge, length);
      }
    }
  }
}

// Is the gap under way longer by far than most after its mark, and are few known that are as long.
// With the mutex.
bool is_unlike_others(const Meter& m, const Line& line, int64_t now) {
  if (line.from == nullptr || line.quiet > 0 || line.in_data > 0) {
    return false;
  }
  const int octave = octave_of(now - line.gap_start - apart_of(line));
  if (octave < kUnlike) {
    return false;
  }
  double shorter = 0, whole = 0, by_chance = 0;
  Seen looked{};
  each_length_after(m, line.from->mark, [&](const Edge&, const Length& length) {
    if (length.octave <= octave - kFar) {
      shorter += length.population.n[0];
    } else if (length.observed && length.octave >= octave - 1) {
      const Observed& seen = *length.observed;
      whole += seen.whole[kCertain].sums.gaps + seen.whole[kRandom].sums.gaps;
      by_chance += seen.slices[kRandom].sums.seen.windows;
      looked.n += seen.looked.seen.n;
      looked.ops += seen.looked.seen.ops;
    }
  });
  // What chance has seen of an evaluation with a pause after it may all be pauses.
  const bool tells = looked.ops > 0 && looked.n < kFewKnown;
  return shorter > 0 && whole < kFewKnown && (tells || whole + by_chance < kFewKnown);
}

// How many gaps after a mark were seen whole that are as long as those that are seen in slices.
double long_ones_known(const Meter& m, const Mark* mark) {
  double known = 0;
  each_length_after(m, mark, [&](const Edge&, const Length& length) {
    if (length.octave >= kLong && length.observed) {
      const Observed& seen = *length.observed;
      known += seen.whole[kCertain].sums.gaps + seen.whole[kRandom].sums.gaps;
    }
  });
  return known;
}

// Gaps after a mark that were looked at.
struct Looked {
  double gaps = 0;
  double ended = 0;  // of these, seen to their end
  double ops = 0;    // of each, as slices of it tell; 0: none was looked at
};

Looked looked_after(const Meter& m, const Mark* mark) {
  Looked all;
  each_length_after(m, mark, [&](const Edge&, const Length& length) {
    if (length.observed) {
      const Seen& looked = length.observed->looked.seen;
      all.gaps += looked.n;
      all.ops += looked.ops;
      all.ended += length.observed->ended.seen.n;
    }
  });
  all.ops /= std::max(1.0, all.gaps);
  return all;
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
    m.unused.push_back(new Line{.notes = new Notes()});
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
  std::lock_guard<Mutex> lock(m.mutex);
  book_notes(*line);
  end_gap(*line, 0, now_ns());
  Line* expected = line;
  last_line.compare_exchange_strong(expected, line == m.main ? nullptr : m.main);
  m.others_before.captured_ns += line->spent.captured_ns;
  m.others_before.compile_ns += line->spent.compile_ns;
  m.lines.erase(std::remove(m.lines.begin(), m.lines.end(), line), m.lines.end());
  line->start_over();
  m.unused.push_back(line);
}

// Ends a thread's line when the thread does.
struct Ending {
  bool is_due = false;
  ~Ending() {
    if (is_due && this_thread().line != nullptr) {
      this_thread().notes = nullptr;
      end_line(std::exchange(this_thread().line, nullptr));
    }
  }
};
thread_local Ending ending;

// The line of a mark's thread, which begins with the first. With the meter's mutex.
Line* line_for_mark(Thread& t) {
  Line* line = booked_line_of(t);
  if (line == nullptr) {
    if (t.line == nullptr) {
      has_line(t, new_line(meter(), false));
      ending.is_due = true;
    }
    line = t.line;
  }
  last_line.store(line, std::memory_order_relaxed);
  return line;
}

// Is a mark of this thread noted, and nothing else done: no window is open, and nothing is left
// from one.
bool is_noted_only(const Thread& t) {
  return t.notes != nullptr && open_now.load(std::memory_order_relaxed) == 0 && !t.silenced &&
         !t.has_work && t.call.number == 0 && t.notes->has_room();
}

void note(Thread& t, const Notes::Note& note) {
  t.inner = 0;
  if (last_line.load(std::memory_order_relaxed) != t.line) {
    last_line.store(t.line, std::memory_order_relaxed);
  }
  t.notes->add(note);
}

// The number of an event that is a mark, 1 and up; 0 where there are too many.
int32_t event_number(Meter& m, const char* name) {
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
  Thread& t = this_thread();
  if (t.regions || t.quiet) {
    return;
  }
  const char* name = event.name();
  if (!starts_with(name, "enumerate(DataLoader)") && !starts_with(name, "Optimizer.")) {
    return;
  }
  Meter& m = meter();
  bool last;
  {
    std::lock_guard<Mutex> lock(m.mutex);
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

}  // namespace
