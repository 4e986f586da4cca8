// Preloaded: a thread that reads the clock is held up right after it now and then, as by a machine
// that has more to do than it has processors.

#include <dlfcn.h>

#include <atomic>
#include <cstdint>
#include <ctime>

namespace {

constexpr uint32_t kEvery = 200;  // on average
constexpr int64_t kHeldUpNs = 200000;
std::atomic<uint32_t> drawn{0};

bool is_held_up() {
  uint32_t x = ++drawn;  // mixed: a loop's reads are not always the same ones
  x = (x ^ (x >> 16)) * 0x45d9f3bU;
  x = (x ^ (x >> 16)) * 0x45d9f3bU;
  return (x ^ (x >> 16)) % kEvery == 0;
}

}  // namespace

extern "C" {

uint32_t clock_reads() { return drawn; }

int clock_gettime(clockid_t clock, timespec* time) noexcept {
  static const auto real =
      reinterpret_cast<int (*)(clockid_t, timespec*)>(dlsym(RTLD_NEXT, "clock_gettime"));
  const int result = real(clock, time);
  if (clock == CLOCK_MONOTONIC && is_held_up()) {
    const timespec pause{.tv_sec = 0, .tv_nsec = kHeldUpNs};
    nanosleep(&pause, nullptr);
  }
  return result;
}

}  // extern "C"
