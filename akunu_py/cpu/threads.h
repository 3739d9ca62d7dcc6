// Threads that share the parts of one kernel.

#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <functional>
#include <mutex>
#include <thread>

namespace akunu {

// Each thread takes the next part that nobody has taken. So a thread whose core another program
// uses holds up at most the part in its hands, and one that sleeps holds up nothing.
class Threads {
 public:
  static Threads& all() {
    static Threads* threads = new Threads;  // never deleted: its threads outlive main()
    return *threads;
  }

  // The number of threads for later kernels, that of the caller included.
  void use(int number) { wanted_ = std::clamp(number, 1, MOST); }
  int number() const { return wanted_; }

  // Calls work(0), ..., work(parts - 1), each once, in any thread and order.
  void run(int parts, const std::function<void(int)>& work) {
    const int helpers = std::min(wanted_.load(), parts) - 1;
    // Of two streams the second works alone; a part may not begin another job.
    if (helpers < 1 || !busy_.try_lock()) {
      for (int part = 0; part < parts; part++) work(part);
      return;
    }
    const std::lock_guard held(busy_, std::adopt_lock);
    for (; started_ < helpers; started_++) std::thread([this] { help(); }).detach();
    job_ = &work;
    done_ = 0;
    const uint64_t number = (ticket_.load() >> 32) + 1;
    ticket_.store(number << 32 | uint64_t(parts) << 16, std::memory_order_release);
    ticket_.notify_all();
    while (take()) {
    }
    while (done_.load(std::memory_order_acquire) < parts) pause();
  }

 private:
  static constexpr int MOST = 256;
  // A look at a ticket takes some 30 ns: about as long as a pass of a small model between kernels.
  static constexpr int LOOKS = 2000;
  static constexpr uint64_t FIELD = 0xffff;

  static void pause() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
  }

  // Takes and does a part; returns whether there was one.
  bool take() {
    uint64_t ticket = ticket_.load(std::memory_order_acquire);
    while ((ticket & FIELD) < (ticket >> 16 & FIELD)) {
      if (!ticket_.compare_exchange_weak(ticket, ticket + 1)) continue;
      // The job cannot change before this part is done.
      (*job_)(int(ticket & FIELD));
      done_.fetch_add(1, std::memory_order_release);
      return true;
    }
    return false;
  }

  void help() {
    for (;;) {
      const uint64_t seen = ticket_.load();
      if (take()) continue;
      for (int look = 0; look < LOOKS && ticket_.load() == seen; look++) pause();
      ticket_.wait(seen);
    }
  }

  std::atomic<int> wanted_{1};
  std::mutex busy_;
  int started_ = 0;
  const std::function<void(int)>* job_ = nullptr;
  // The job's number, its parts, and how many of them are taken.
  std::atomic<uint64_t> ticket_{0};
  std::atomic<int> done_{0};
};

}  // namespace akunu
