#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace lockstep::trainer::parameter_server {

// Large objects that are lent to any thread and used again once nobody has them any more: as many as were out
// at once. What the last borrower did with one comes before what the next does. Objects may outlive the pool.
// Take is for one thread at a time.
template <typename T>
class Pool {
 public:
  // One that has come back, as it was left, or what `make` makes.
  std::shared_ptr<T> Take(const std::function<std::unique_ptr<T>()>& make) {
    std::unique_ptr<T> object;
    {
      const std::lock_guard lock(returned_->mutex);
      if (!returned_->objects.empty()) {
        object = std::move(returned_->objects.back());
        returned_->objects.pop_back();
      }
    }
    if (object == nullptr) object = make();
    return {object.release(), [returned = returned_](T* back) {
              std::unique_ptr<T> owned(back);
              const std::lock_guard lock(returned->mutex);
              returned->objects.push_back(std::move(owned));
            }};
  }

 private:
  struct Returned {
    std::mutex mutex;
    std::vector<std::unique_ptr<T>> objects;
  };
  std::shared_ptr<Returned> returned_ = std::make_shared<Returned>();
};

}  // namespace lockstep::trainer::parameter_server
