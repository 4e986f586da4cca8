// Windows: how they open, close and are waited for.

#pragma once

#include "_op_events.h"

namespace {

// Of a gap that is unlike all that was seen. Many short slices, all over it, tell more than few
// long ones: machines are faster at one moment than at another.
constexpr int64_t kSliceNs = 4000000;
constexpr double kLooksApart = 1.25;  // times as long it has gone on at the next one of it
constexpr double kMayCost = 0.8;      // of what is left: to see one to its end
// Until two have been, slices of all but two are saved for that, if two thirds of it are left.
constexpr double kToEnd = 2, kSaves = 1.5;
constexpr int64_t kLongestEndNs = 60000000000;  // that is waited for with one
// What a window of chance may cost: so many times what such have cost for as long. One that meets
// denser ops would be made up for by seeing nothing of what comes after these.
constexpr double kOverspends = 2;
constexpr int64_t kLeastSpentNs = 1000000;
std::atomic<int64_t> unlike_ns{0};  // what windows for such have cost

// Which gaps that are under way count as if they began now.
enum Whole : int32_t { kNoGap, kAllGaps, kMainGap };

// With `window_mutex`.
void open_window(Set set, int64_t until, Whole whole) {
  if (handle != at::INVALID_CALLBACK_HANDLE) {
    return;
  }
  has_company = at::getStepCallbacksUnlessEmpty(at::RecordScope::FUNCTION).has_value();
  // Not BACKWARD_FUNCTION: the engine's own FUNCTION event encloses the one of each node, and a
  // second name put together for each would cost 2 us.
  handle = at::addGlobalCallback(
      at::RecordFunctionCallback(on_start, on_end).scopes({at::RecordScope::FUNCTION}));
  see_calls(window + 1);  // those that begin from here on: `open_now` comes later
  Meter& m = meter();
  {
    const Booked lock(m);
    ++window;
    window_set = set;
    opened_ns = now_ns();
    lead_end = opened_ns + kLeadNs;
    head_end = until;
    untimed_calls = 0;
    for (Line* line : m.lines) {
      line->untimed_call = line->in_call;
      untimed_calls.fetch_add(line->untimed_call, std::memory_order_relaxed);
      if (line->from != nullptr) {
        settle_quiet(*line, opened_ns);
        line->was_seen = true;
        line->seen_from = opened_ns;
        line->seen_apart = apart_of(*line);
        line->seen_cost = line->cost_ns;
        if (whole == kAllGaps || (whole == kMainGap && line->main)) {
          line->watched = true;
          watching.fetch_add(1, std::memory_order_relaxed);
        } else {
          line->seen_from = lead_end;
          line->leads_in = true;
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
  see_calls(0);
  at::removeCallback(handle);
  handle = at::INVALID_CALLBACK_HANDLE;
  ends_with = 0;
  Meter& m = meter();
  {
    const Booked lock(m);
    open_now = 0;
    const int64_t now = now_ns();
    const int64_t end = std::min(now, head_end.load());
    head_end = 0;
    for (Line* line : m.lines) {
      if (line->seen_from != 0) {
        keep_slice(*line, end);
      }
    }
    add_loose(m, m.loose_sums[window_set], end);
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
  // The GPU may be behind. What it has not reached then is read in the next window.
  const int64_t until = now_ns() + kLongestPollsNs;
  bool left = true;
  while (left && now_ns() < until && wakes.load() == awake) {
    lock.unlock();
    left = poll_all(false);
    lock.lock();
    if (left) {
      wait_until(lock, now_ns() + kPollNs, awake, 0);
    }
  }
}

// A certain window that lasts for so long, and then until what began in it has ended.
void run_certain(std::unique_lock<std::mutex>& lock, int64_t window_ns, int64_t longest_ns,
                 uint64_t awake) {
  const int64_t end = now_ns() + window_ns;
  open_window(kCertain, end, kNoGap);
  const uint64_t which = window;
  wait_until(lock, end, awake, which);
  finish(lock, longest_ns, awake, which);
}

// What windows have cost.
int64_t spent_ns() {
  std::lock_guard<std::mutex> lock(work_mutex);
  return int64_t(work.events * kEventNs + work.op_ns + work.sample_ns);
}

// What one op costs in windows, on average, with all that it encloses; samples become ever fewer.
double ns_of_op() {
  std::lock_guard<std::mutex> lock(work_mutex);
  return double(work.events * kEventNs + work.op_ns) / double(std::max<uint64_t>(1, work.ops));
}

// The window stays open until that gap of the main thread ends, or until it has cost so much.
void stay(std::unique_lock<std::mutex>& lock, const Line& main, uint64_t pass, int64_t most_ns,
          uint64_t awake, uint64_t which) {
  const int64_t most_spent_ns = spent_ns() + most_ns, last_ns = now_ns() + kLongestEndNs;
  const auto goes_on = [&] {
    const Booked booked(meter());
    return main.from != nullptr && main.pass == pass && spent_ns() < most_spent_ns &&
           now_ns() < last_ns;
  };
  while (is_open(which) && wakes.load() == awake && goes_on()) {
    wait_until(lock, now_ns() + kSliceNs, awake, which);
  }
}

// A window that lasts until that gap of the main thread ends, or has cost so much.
void run_to_end_of(std::unique_lock<std::mutex>& lock, const Line& main, uint64_t pass,
                   int64_t most_ns, int64_t longest_ns, uint64_t awake) {
  open_window(kCertain, now_ns() + kLongestEndNs, kNoGap);
  ends_with = pass;
  const uint64_t which = window;
  stay(lock, main, pass, most_ns, awake, which);
  if (is_open(which)) {
    head_end = std::min(now_ns(), head_end.load());
  }
  finish(lock, longest_ns, awake, which);
}

// A window of chance. Of a gap that began in it, goes on for longer than windows wait, and is after
// the same mark as one that was looked at and had ops, it sees all, or as much as may be spent: of
// evaluations that take long, one that was seen whole tells more than slices of many.
void run_by_chance(std::unique_lock<std::mutex>& lock, int64_t window_ns, int64_t longest_ns,
                   int64_t most_ns, uint64_t awake) {
  const int64_t spent_before_ns = spent_ns();
  const double usual_ns = chance.usual_cost_ns(double(window_ns));
  const int64_t most_spent_ns =
      spent_before_ns + std::max(kLeastSpentNs, int64_t(kOverspends * usual_ns));
  const int64_t start = now_ns(), end = start + window_ns;
  open_window(kRandom, end, kNoGap);
  chance.window_ns = double(window_ns);
  const uint64_t which = window;
  while (is_open(which) && wakes.load() == awake && now_ns() < head_end) {
    wait_until(lock, std::min(end, now_ns() + kSliceNs), awake, which);
    if (spent_ns() > most_spent_ns) {
      head_end = std::min(now_ns(), end);
    }
  }
  if (is_open(which)) {
    chance.window_ns = double(head_end - start);
    chance.all_ns += chance.window_ns;
    chance.spent_ns += double(spent_ns() - spent_before_ns);
  }
  if (watching.load() > 0) {
    wait_until(lock, now_ns() + longest_ns, awake, which);
  }
  Meter& m = meter();
  const Line* main = nullptr;
  uint64_t pass = 0;
  bool stays = false;
  if (is_open(which)) {
    const Booked booked(m);
    main = m.main;
    if (main != nullptr && main->watched) {
      const Mark* mark = main->from->mark;
      pass = main->pass;
      stays = looked_after(m, mark).ops > 0 && long_ones_known(m, mark) < kFewKnown;
    }
  }
  const int64_t may_cost_ns = int64_t(kMayCost * double(most_ns - unlike_ns));
  if (stays && may_cost_ns > 0) {
    const int64_t before_ns = spent_ns();
    stay(lock, *main, pass, may_cost_ns, awake, which);
    unlike_ns += spent_ns() - before_ns;
  }
  finish(lock, 0, awake, which);
}

// Waits, and every so often looks for what the main thread runs that is unlike all that was seen,
// such as an evaluation after many steps: chance seldom meets it. Windows see slices of it, the
// farther apart, the longer it goes on; and of one like others that were looked at, all that comes,
// if that costs little enough, for which slices of others are saved. `most_ns`: what such windows
// may have cost by now. True if chance's window may open: not after one that saw all there was at
// that moment.
bool wait_and_look(std::unique_lock<std::mutex>& lock, int64_t moment, int64_t look_ns,
                   int64_t most_ns, int64_t longest_ns, uint64_t awake) {
  Meter& m = meter();
  Line* main;
  uint64_t pass = 0;  // of the gap that was seen last
  int64_t next_ns = 0;
  bool is_due = true;
  {
    std::lock_guard<Mutex> booking(m.mutex);
    main = m.main;
  }
  while (true) {
    wait_until(lock, std::min(moment, now_ns() + look_ns), awake, 0);
    if (wakes.load() != awake || now_ns() >= moment || handle != at::INVALID_CALLBACK_HANDLE) {
      return is_due && wakes.load() == awake && handle == at::INVALID_CALLBACK_HANDLE;
    }
    if (unlike_ns <= most_ns && is_unknown_called()) {
      const int64_t before_ns = spent_ns();
      run_certain(lock, kSliceNs, longest_ns, awake);
      unlike_ns += spent_ns() - before_ns;
      continue;
    }
    // A program that calls graphs often is not looked at any further.
    if (main == nullptr || unlike_ns > most_ns ||
        now_ns() - main->notes->last_ns() < int64_t(1) << kUnlike) {
      continue;
    }
    int64_t gap_ns = 0;
    Looked such;
    {
      const Booked booked(m);
      const int64_t now = now_ns();
      if (main->pass != pass) {
        pass = main->pass;
        next_ns = 0;
      }
      if (main->main && is_unlike_others(m, *main, now)) {
        gap_ns = now - main->gap_start;
        such = next_ns == 0 ? looked_after(m, main->from->mark) : Looked();
      }
    }
    if (gap_ns > next_ns) {
      next_ns = int64_t(kLooksApart * double(gap_ns));
      const int64_t before_ns = spent_ns();
      const int64_t may_cost_ns = int64_t(kMayCost * double(most_ns - unlike_ns));
      const double to_end_ns = such.ops > 0 ? such.ops * ns_of_op() : HUGE_VAL;
      if (to_end_ns < may_cost_ns) {
        run_to_end_of(lock, *main, pass, may_cost_ns, longest_ns, awake);
        is_due = now_ns() < moment;
      } else if (such.gaps >= kToEnd && such.ended < kToEnd && to_end_ns < kSaves * may_cost_ns) {
        next_ns = kNever;
      } else {
        run_certain(lock, kSliceNs, longest_ns, awake);
      }
      unlike_ns += spent_ns() - before_ns;
    }
  }
}

// While a process forks, nothing of ours is half done, and the child's locks are free. What
// PyTorch locks to keep our callbacks is locked with `window_mutex` only.
void before_fork() {
  window_mutex.lock();
  meter().mutex.lock();
  work_mutex.lock();
  gpu().mutex.lock();
}

void after_fork() {
  gpu().mutex.unlock();
  work_mutex.unlock();
  meter().mutex.unlock();
  window_mutex.unlock();
}

const int forks_are_seen = pthread_atfork(before_fork, after_fork, after_fork);

}  // namespace
