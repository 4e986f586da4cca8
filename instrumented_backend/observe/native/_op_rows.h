// What the op meter hands out, as rows; build.py has the same structs.

#pragma once

#include "_op_calls.h"
#include "_op_gpu.h"
#include "_op_marks.h"
#include "_op_state.h"

namespace {

// As they are handed out.
struct MarkRow {
  int64_t mark, graph, event, in_data;
};

struct KindRow {
  int64_t kind, edge, mark, to, octave;
  Population population;
  Seen whole[kSets], slices[kSets], first, looked, met, ended;
  Seen by_chance;  // of the edge
};

struct StageRow {
  int64_t kind;
  double from_ns, until_ns;
  Seen seen;
};

struct CellRow {
  int64_t kind, edge;  // -1: of threads without marks
  int64_t part;        // 2 * (is it of slices) + set; 4: the first gap
  int64_t mark, slot, ordinal;
  const char* name;
  double count, ns;
};

struct SampleRow {
  int64_t kind, edge, part, mark, slot, line;
  Sampled sums;
};

struct FunctionRow {
  int64_t function, calls, seen, differ;
  const char* name;
  const char* ops[kMaxOpsOfCall];
};

struct CallerRow {
  const char* name;
  int64_t function;  // -1: none
};

struct TimeRow {
  int64_t main_captured_ns, main_compile_ns, other_captured_ns, other_compile_ns;
  int64_t lost;
  Seen loose[kSets];  // of threads without marks
};

// Kinds of gap are numbered by their edge and octave.
int64_t kind_of(const Edge& edge, int octave) { return edge.number * kOctaves + octave; }
int64_t edge_of(int64_t kind) { return kind < 0 ? -1 : kind / kOctaves; }

template <typename Visit>
void each_kind(Meter& m, Visit visit) {
  for (Position& position : m.positions) {
    for (Edge* edge = position.edges; edge != nullptr; edge = edge->next) {
      visit(kind_of(*edge, edge->usual.octave), *position.mark, *edge, edge->usual);
      for (const Length& length : edge->others) {
        visit(kind_of(*edge, length.octave), *position.mark, *edge, length);
      }
    }
  }
}

template <typename Visit>
void each_loose_part(Meter& m, Visit visit) {
  for (int set = 0; set < kSets; ++set) {
    visit(-1, 2 + set, nullptr, m.loose[set], 1);
  }
}

template <typename Visit>
void each_part(Meter& m, Visit visit) {
  each_kind(m, [&](int64_t kind, Mark& mark, Edge& edge, const Length& length) {
    if (length.octave == edge.first_octave) {
      visit(kind, 2 * kSets, &mark, edge.first->ops, 1);
    }
    if (Observed* observed = length.observed.get()) {
      for (int set = 0; set < kSets; ++set) {
        const Tally& whole = observed->whole[set];
        visit(kind, set, &mark, whole.ops, whole.sums.scale());
        const Tally& slices = observed->slices[set];
        visit(kind, 2 + set, &mark, slices.ops, slices.sums.scale());
      }
    }
  });
  each_loose_part(m, visit);
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

// `each` visits parts.
template <typename Each>
int64_t copy_cells(CellRow* out, int64_t capacity, Each each) {
  Meter& m = meter();
  const Booked lock(m);
  weigh_closed(m);
  Output<CellRow> output{out, capacity};
  each(m, [&](int64_t kind, int part, const Mark* mark, const Ops& seen, double scale) {
    for (const uint32_t slot : seen.touched) {
      const Cell& cell = m.cells[mark == nullptr ? slot : mark->cells[slot]];
      const CellSum& sum = seen.cells[slot];
      output.add({kind, edge_of(kind), part, cell.mark, slot, cell.ordinal, cell.name,
                  scale * sum.count, scale * sum.ns});
    }
  });
  return output.size;
}

}  // namespace

extern "C" {

int64_t op_meter_size(const char* name) {
  const std::string_view asked = name;
  if (asked == "MarkRow") return sizeof(MarkRow);
  if (asked == "KindRow") return sizeof(KindRow);
  if (asked == "StageRow") return sizeof(StageRow);
  if (asked == "CellRow") return sizeof(CellRow);
  if (asked == "SampleRow") return sizeof(SampleRow);
  if (asked == "RegionRow") return sizeof(Region);
  if (asked == "TimeRow") return sizeof(TimeRow);
  if (asked == "FunctionRow") return sizeof(FunctionRow);
  if (asked == "CallerRow") return sizeof(CallerRow);
  if (asked == "Work") return sizeof(Work);
  if (asked == "GpuFunctions") return sizeof(GpuFunctions);
  if (asked == "GpuTimeRow") return sizeof(GpuTimeRow);
  if (asked == "GpuCallRow") return sizeof(GpuCallRow);
  if (asked == "GpuOpRow") return sizeof(GpuOpRow);
  return 0;
}

// Gaps that are under way, and have been for so long, not counting compilations, end here and go on
// as new ones, for what is read next to be whole.
void op_meter_settle(int64_t longer_than_ns) {
  Meter& m = meter();
  const Booked lock(m);
  const int64_t now = now_ns();
  for (Line* line : m.lines) {
    settle_quiet(*line, now);
    Position* from = line->from;
    if (from != nullptr && now - line->gap_start - apart_of(*line) >= longer_than_ns) {
      end_gap(*line, 0, now);
      begin_gap_at(*line, from, now);
    }
  }
}

// Copy out at most `capacity` records; return how many there are.
int64_t op_meter_marks(MarkRow* out, int64_t capacity) {
  Meter& m = meter();
  const Booked lock(m);
  Output<MarkRow> output{out, capacity};
  for (const Mark& mark : m.marks) {
    output.add({mark.number, mark.graph, mark.event, mark.in_data});
  }
  return output.size;
}

int64_t op_meter_kinds(KindRow* out, int64_t capacity) {
  Meter& m = meter();
  const Booked lock(m);
  weigh_closed(m);
  Output<KindRow> output{out, capacity};
  const double mean = chance.mean();
  each_kind(m, [&](int64_t kind, Mark& mark, Edge& edge, const Length& length) {
    KindRow row{
        kind, edge.number, mark.number, edge.to, length.octave, length.population, {}, {}, {},
        {},   {},          {},          {}};
    row.by_chance = edge.by_chance.handed_out(mean);
    if (length.octave == edge.first_octave) {
      row.first = edge.first->sums.handed_out(1);
    }
    if (Observed* observed = length.observed.get()) {
      for (int set = 0; set < kSets; ++set) {
        const double mean_weight = set == kRandom ? mean : 1;
        row.whole[set] = observed->whole[set].sums.handed_out(mean_weight);
        row.slices[set] = observed->slices[set].sums.handed_out(mean_weight);
      }
      row.looked = observed->looked.seen;
      row.met = observed->met.seen;
      row.ended = observed->ended.seen;
    }
    output.add(row);
  });
  return output.size;
}

int64_t op_meter_stages(StageRow* out, int64_t capacity) {
  Meter& m = meter();
  const Booked lock(m);
  Output<StageRow> output{out, capacity};
  each_kind(m, [&](int64_t kind, Mark&, Edge&, const Length& length) {
    if (!length.observed || !length.observed->stages) {
      return;
    }
    for (size_t i = 0; i < kStages; ++i) {
      Sums& sums = (*length.observed->stages)[i];
      sums.close();
      if (sums.seen.ns > 0) {
        output.add({kind, stage_begin(i), stage_begin(i + 1), sums.seen});
      }
    }
  });
  return output.size;
}

int64_t op_meter_cells(CellRow* out, int64_t capacity) {
  return copy_cells(out, capacity, [](Meter& m, auto add) { each_part(m, add); });
}

// Of threads without marks alone, which are few.
int64_t op_meter_loose_cells(CellRow* out, int64_t capacity) {
  return copy_cells(out, capacity, [](Meter& m, auto add) { each_loose_part(m, add); });
}

int64_t op_meter_samples(SampleRow* out, int64_t capacity) {
  Meter& m = meter();
  const Booked lock(m);
  weigh_closed(m);
  Output<SampleRow> output{out, capacity};
  each_part(m, [&](int64_t kind, int part, const Mark* mark, const Ops& seen, double scale) {
    for (const auto& [place, taken] : seen.samples) {
      Sampled sums;
      sums.add(taken, scale);
      output.add({kind, edge_of(kind), part, mark == nullptr ? -1 : mark->number,
                  int64_t(place >> 32), int64_t(uint32_t(place)), sums});
    }
  });
  return output.size;
}

int64_t op_meter_functions(FunctionRow* out, int64_t capacity) {
  const Functions& f = functions();
  Output<FunctionRow> output{out, capacity};
  for (size_t i = 0; i < f.names.size(); ++i) {
    const Function& function = op_meter_table[i];
    const auto calls = int64_t(function.calls - function.before);
    if (calls > 0) {
      FunctionRow row{
          int64_t(i), calls, int64_t(function.seen), function.differ, function.entry->ml_name, {}};
      std::copy(f.names[i].begin(), f.names[i].end(), row.ops);
      output.add(row);
    }
  }
  return output.size;
}

int64_t op_meter_callers(CallerRow* out, int64_t capacity) {
  Meter& m = meter();
  const Booked lock(m);
  Output<CallerRow> output{out, capacity};
  for (const auto& [name, functions] : m.callers) {
    for (const uint32_t function : functions) {
      output.add({name, function == kNoFunction ? -1 : int64_t(function)});
    }
  }
  return output.size;
}

// By direction.
int64_t op_meter_regions(Region* out, int64_t capacity) {
  Meter& m = meter();
  const Booked lock(m);
  std::copy_n(m.regions.begin(), std::min<int64_t>(m.regions.size(), capacity), out);
  return m.regions.size();
}

void op_meter_times(TimeRow* out) {
  Meter& m = meter();
  const Booked lock(m);
  Spent mine, others = m.others_before;
  for (const Line* line : m.lines) {
    Spent& sum = line->main ? mine : others;
    sum.captured_ns += line->spent.captured_ns;
    sum.compile_ns += line->spent.compile_ns;
  }
  *out = {mine.captured_ns, mine.compile_ns, others.captured_ns, others.compile_ns, m.lost, {}};
  for (int set = 0; set < kSets; ++set) {
    Sums sums = m.loose_sums[set];
    if (open_now && set == window_set) {
      add_loose(m, sums, std::min(now_ns(), head_end.load()));
    }
    sums.close();
    out->loose[set] = sums.seen;
  }
}

// Reads what the GPU has reached; the next three hand it out.
void op_meter_gpu_settle() { poll_all(true); }

int64_t op_meter_gpu_times(GpuTimeRow* out, int64_t capacity) {
  const Booked booked(meter());
  Gpu& g = gpu();
  std::lock_guard<std::mutex> lock(g.mutex);
  Output<GpuTimeRow> output{out, capacity};
  for (int32_t i = 0; i < kMaxDevices; ++i) {
    GpuDevice& d = g.devices[i];
    if (d.used) {
      GpuTimeRow row = d.times;
      row.device = i;
      row.more_ns = double(meter().at_once[i].more_ns);
      for (int set = 0; set < kSets; ++set) {
        d.at_once[set].close();
        row.at_once[set] = d.at_once[set].seen;
      }
      output.add(row);
    }
  }
  return output.size;
}

int64_t op_meter_gpu_calls(GpuCallRow* out, int64_t capacity) {
  Gpu& g = gpu();
  std::lock_guard<std::mutex> lock(g.mutex);
  Output<GpuCallRow> output{out, capacity};
  for (size_t key = 0; key < g.calls.size(); ++key) {
    GpuCalls& calls = g.calls[key];
    if (calls.device >= 0) {
      GpuCallRow row{.key = int64_t(key),
                     .device = calls.device,
                     .first_ns = calls.first_ns,
                     .seen = {},
                     .host_ns = {},
                     .first_host_ns = calls.first_host_ns};
      for (int set = 0; set < kSets; ++set) {
        calls.sums[set].close();
        row.seen[set] = calls.sums[set].seen;
        row.host_ns[set] = calls.host_ns[set];
      }
      output.add(row);
    }
  }
  return output.size;
}

int64_t op_meter_gpu_ops(GpuOpRow* out, int64_t capacity) {
  Gpu& g = gpu();
  std::lock_guard<std::mutex> lock(g.mutex);
  Output<GpuOpRow> output{out, capacity};
  for (const auto& [cell, sum] : g.ops) {
    output.add({int64_t(cell >> 32) - 1, int64_t(uint32_t(cell)), sum.name, sum.n, sum.ns});
  }
  return output.size;
}

// The name of an event by its number; nullptr for one that there is none of.
const char* op_meter_event(int64_t number) {
  Meter& m = meter();
  const Booked lock(m);
  return number >= 0 && size_t(number) < m.events.size() ? m.events[number] : nullptr;
}

}  // extern "C"
