// A GPU in the host's time, for tests of the op meter's native part where there is none.
//
// A stream does what it is given, one thing after the other; an event is reached when what was
// given before it is done. While it is held, it does nothing: it is behind, however slow the host
// is. Native, because a thread of ours asks it without the interpreter.

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <ctime>
#include <map>
#include <mutex>
#include <string>

namespace {

std::mutex mutex;
std::map<void*, int64_t> free_at;  // by stream
std::map<void*, int64_t> reached;  // by event
std::map<std::string, int64_t> calls;
std::map<void*, int32_t> device_of;  // by event
thread_local int32_t current = 0;    // device
int64_t made = 0, stream = 1;
int capturing = 0, error = 0, mode = 0;
int64_t record_ns = 0;  // what the host is held up for in recording an event
int64_t held_at = 0;    // a moment far away at which it goes on; 0: it is not held
constexpr int64_t kFarNs = int64_t(1) << 60;
// Of this thread, until it is asked for: what the program would be told next.
thread_local int pending = 0;
constexpr int kInvalidHandle = 400, kNotReady = 600, kIllegalAddress = 700;

int64_t now_ns() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return int64_t(t.tv_sec) * 1000000000 + t.tv_nsec;
}

int64_t when_free(void* on) { return std::max(held_at ? held_at : now_ns(), free_at[on]); }

struct Called : std::lock_guard<std::mutex> {
  explicit Called(const char* name) : std::lock_guard<std::mutex>(mutex) { ++calls[name]; }
};

}  // namespace

extern "C" {

int fake_current_stream(int32_t, void** out) {
  const Called called("current_stream");
  *out = reinterpret_cast<void*>(stream);
  return 0;
}

int fake_create_guard(int32_t device, void** out) {
  const Called called("create_guard");
  *out = reinterpret_cast<void*>(int64_t(current) + 1);
  current = device;
  return 0;
}

int fake_delete_guard(void* guard) {
  const Called called("delete_guard");
  current = int32_t(reinterpret_cast<int64_t>(guard)) - 1;
  return 0;
}

int fake_current_device(int* out) {
  const Called called("current_device");
  *out = current;
  return 0;
}

int fake_is_capturing(void*, int* out) {
  const Called called("is_capturing");
  *out = capturing;
  return 0;
}

int fake_exchange_capture_mode(int* wanted) {
  const Called called("exchange_capture_mode");
  std::swap(mode, *wanted);
  return 0;
}

int fake_create(void** out) {
  const Called called("create");
  *out = reinterpret_cast<void*>(++made);
  device_of[*out] = current;
  return 0;
}

int fake_record(void* event, void* on) {
  const Called called("record");
  // As CUDA has it of the default stream, which is the current device's.
  if (device_of[event] != current) {
    return pending = kInvalidHandle;
  }
  for (const int64_t until = now_ns() + record_ns; now_ns() < until;) {
  }
  reached[event] = when_free(on);
  pending = std::max(pending, error);
  return error;
}

int fake_elapsed_ms(float* out, void* begin, void* end) {
  const Called called("elapsed_ms");
  if (device_of[begin] != current || device_of[end] != current) {
    return kInvalidHandle;  // stricter than CUDA, which may give the current device memory
  }
  if (now_ns() < std::max(reached[begin], reached[end])) {
    return kNotReady;
  }
  *out = float(1e-6 * double(reached[end] - reached[begin]));
  return 0;
}

int fake_last_error() {
  const Called called("last_error");
  const int found = pending;
  pending = found == kIllegalAddress ? found : 0;  // such an error stays
  return found;
}

// What tests do with it.

void fake_reset() {
  const std::lock_guard<std::mutex> lock(mutex);
  free_at.clear();
  reached.clear();
  calls.clear();
  device_of.clear();
  made = pending = 0;
  stream = 1;
  capturing = error = mode = 0;
  record_ns = held_at = 0;
}

void fake_hold() {
  const std::lock_guard<std::mutex> lock(mutex);
  held_at = kFarNs;
}

// It does now what it was given while it was held.
void fake_release() {
  const std::lock_guard<std::mutex> lock(mutex);
  if (held_at == 0) {
    return;
  }
  const int64_t sooner = held_at - now_ns();
  for (auto* moments : {&free_at, &reached}) {
    for (auto& [of, moment] : *moments) {
      moment -= moment >= held_at ? sooner : 0;
    }
  }
  held_at = 0;
}

void fake_work(int64_t ns, int64_t on) {
  const std::lock_guard<std::mutex> lock(mutex);
  void* given = reinterpret_cast<void*>(on);
  free_at[given] = when_free(given) + ns;
}

int64_t fake_busy_ns() {
  const std::lock_guard<std::mutex> lock(mutex);
  int64_t last = 0;
  for (const auto& [on, until] : free_at) {
    last = std::max(last, until);
  }
  return std::max<int64_t>(0, last - now_ns());
}

void fake_set(int64_t current_stream, int is_capturing, int next_error, int64_t held_up_ns) {
  const std::lock_guard<std::mutex> lock(mutex);
  stream = current_stream;
  capturing = is_capturing;
  error = next_error;
  record_ns = held_up_ns;
}

int64_t fake_calls(const char* name) {
  const std::lock_guard<std::mutex> lock(mutex);
  return calls[name];
}

int32_t fake_current() { return current; }

int fake_pending() { return pending; }

int fake_capture_mode() {
  const std::lock_guard<std::mutex> lock(mutex);
  return mode;
}

}  // extern "C"
