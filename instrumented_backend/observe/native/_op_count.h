// Counting on one thread, for the ops that a graph's nodes would dispatch.

#pragma once

#include "_op_events.h"

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

// Does nobody else listen to this thread's ops, who would see those that are run to be counted?
int32_t op_count_is_alone() {
  const auto listening = at::getStepCallbacksUnlessEmpty(at::RecordScope::FUNCTION);
  return !listening.has_value() ||
         std::all_of(listening->callbacks_.begin(), listening->callbacks_.end(),
                     [](const auto& callback) { return callback.start_ == on_start; });
}

// The outermost ops since the last call.
int64_t op_count_take() {
  const int64_t result = counted;
  counted = 0;
  return result;
}

void op_count_end(uint64_t handle) { at::removeCallback(handle); }

}  // extern "C"
