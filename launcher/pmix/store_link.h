#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <utility>

#include "common/contract/store.h"
#include "common/status.h"

namespace lockstep::pmix {

// The job's store, connected when it is first needed: the launcher that serves it may be waiting for this
// process before. Thread-safe.
class StoreLink {
 public:
  using Connect = std::function<Result<std::unique_ptr<contract::Store>>()>;

  explicit StoreLink(Connect connect) : connect_(std::move(connect)) {}

  // Once and for all, whether it succeeds or not.
  Result<contract::Store*> Get() {
    std::call_once(once_, [this] {
      auto store = connect_();
      status_ = store.status();
      if (store.ok()) store_ = std::move(*store);
    });
    if (!status_.ok()) return status_;
    return store_.get();
  }

 private:
  const Connect connect_;
  std::once_flag once_;
  Status status_;
  std::unique_ptr<contract::Store> store_;
};

}  // namespace lockstep::pmix
