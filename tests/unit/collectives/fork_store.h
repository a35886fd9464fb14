#pragma once

#include <pthread.h>
#include <sys/mman.h>
#include <time.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <new>
#include <string>
#include <string_view>
#include <vector>

#include "common/contract/store.h"

namespace lockstep::testing {

// A Store for a process and what it forks afterwards: a small table in memory that they share.
class ForkStore final : public contract::Store {
 public:
  ForkStore() {
    void* memory = ::mmap(nullptr, sizeof(Table), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    table_ = new (memory) Table;
    pthread_mutexattr_t mutex;
    pthread_mutexattr_init(&mutex);
    pthread_mutexattr_setpshared(&mutex, PTHREAD_PROCESS_SHARED);
    pthread_mutex_init(&table_->mutex, &mutex);
    pthread_condattr_t condition;
    pthread_condattr_init(&condition);
    pthread_condattr_setpshared(&condition, PTHREAD_PROCESS_SHARED);
    pthread_condattr_setclock(&condition, CLOCK_MONOTONIC);
    pthread_cond_init(&table_->changed, &condition);
  }
  ~ForkStore() override { ::munmap(table_, sizeof(Table)); }
  ForkStore(const ForkStore&) = delete;
  ForkStore& operator=(const ForkStore&) = delete;

  Status Set(std::string_view key, std::string_view value, Deadline) override {
    const Lock lock(table_);
    return Put(key, value);
  }

  Result<std::string> Get(std::string_view key, Deadline deadline) override {
    LOCKSTEP_RETURN_IF_ERROR(Wait({std::string(key)}, deadline));
    const Lock lock(table_);
    const Entry* entry = Find(key);
    return std::string(entry->value, entry->size);
  }

  Result<int64_t> Add(std::string_view key, int64_t amount, Deadline) override {
    const Lock lock(table_);
    const Entry* entry = Find(key);
    const int64_t sum = (entry == nullptr ? 0 : std::stoll(std::string(entry->value, entry->size))) + amount;
    LOCKSTEP_RETURN_IF_ERROR(Put(key, std::to_string(sum)));
    return sum;
  }

  Status Wait(const std::vector<std::string>& keys, Deadline deadline) override {
    const auto since_boot =
        std::chrono::duration_cast<std::chrono::nanoseconds>(deadline.time_since_epoch()).count();
    const timespec until{.tv_sec = since_boot / 1'000'000'000, .tv_nsec = since_boot % 1'000'000'000};
    const Lock lock(table_);
    while (true) {
      std::string missing;
      for (const std::string& key : keys) {
        if (Find(key) == nullptr) missing += (missing.empty() ? "" : ", ") + key;
      }
      if (missing.empty()) return {};
      if (std::chrono::steady_clock::now() >= deadline)
        return DeadlineExceeded("store: waited for key " + missing);
      pthread_cond_timedwait(&table_->changed, &table_->mutex, &until);
    }
  }

 private:
  struct Entry {
    char key[120];
    char value[4096];
    size_t size;
  };
  struct Table {
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    size_t count;
    Entry entries[512];
  };
  struct Lock {
    explicit Lock(Table* table) : mutex(&table->mutex) { pthread_mutex_lock(mutex); }
    ~Lock() { pthread_mutex_unlock(mutex); }
    Lock(const Lock&) = delete;
    Lock& operator=(const Lock&) = delete;
    pthread_mutex_t* mutex;
  };

  Entry* Find(std::string_view key) const {
    Entry* const end = table_->entries + table_->count;
    Entry* const found =
        std::find_if(table_->entries, end, [&](const Entry& entry) { return entry.key == key; });
    return found == end ? nullptr : found;
  }

  Status Put(std::string_view key, std::string_view value) {
    Entry* entry = Find(key);
    if (key.size() >= sizeof entry->key || value.size() > sizeof entry->value ||
        table_->count == std::size(table_->entries)) {
      return ResourceExhausted("the store of this test is full");
    }
    if (entry == nullptr) {
      entry = &table_->entries[table_->count++];
      std::copy(key.begin(), key.end(), entry->key);
    }
    std::copy(value.begin(), value.end(), entry->value);
    entry->size = value.size();
    pthread_cond_broadcast(&table_->changed);
    return {};
  }

  Table* table_ = nullptr;
};

}  // namespace lockstep::testing
