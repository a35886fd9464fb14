#pragma once

#include <chrono>
#include <functional>
#include <string>

#include "launcher/kube/client.h"

namespace lockstep::kube {

// Told of all objects of a kind and of every change. Called by the thread in Follow.
class FollowSink {
 public:
  virtual ~FollowSink() = default;
  // A list begins. Objects that are not Seen until EndList are gone.
  virtual void BeginList() = 0;
  // An object is there: listed, new or changed; not always changed, and changes may be skipped. May be moved
  // from.
  virtual void Seen(Json& object) = 0;
  // The object, as it was last, is gone. Never between BeginList and EndList.
  virtual void Gone(Json& object) = 0;
  // The list is complete: every object is known.
  virtual void EndList() = 0;
  // A list or watch failed; it is tried again after `pause`. A list that failed is begun anew, by BeginList.
  virtual void Failed(const Error& error, std::chrono::milliseconds pause) = 0;
};

struct FollowOptions {
  std::string space = {};  // namespace; empty: all of them
  std::string label_selector = {};
  std::string field_selector = {};
  int page = 500;
  std::chrono::seconds watch_duration{
      300};  // shortened at random by up to a third, so that watches end apart
  // A list once in a while, should an event ever have been lost. 0: never.
  std::chrono::seconds relist{0};
  std::chrono::milliseconds first_pause{
      100};  // after a failure; doubled by each that follows, halved at random
  std::chrono::milliseconds longest_pause{30'000};
};

// Lists, then watches from there on, for ever: goes on at the last bookmark when a watch ends, lists again
// when that is too old (410), waits and tries again when anything fails. Returns when the client is stopped.
void Follow(Client& client, const Resource& resource, const FollowOptions& options, FollowSink& sink);

}  // namespace lockstep::kube
