#include "trainer/parameter_server/client.h"

#include <algorithm>
#include <string>
#include <thread>
#include <utility>

#include "trainer/parameter_server/server.h"

namespace lockstep::trainer::parameter_server {

namespace {

constexpr std::chrono::seconds kConnectTime{5};
constexpr std::chrono::seconds kStoreTime{5};

class Stopwatch {
 public:
  explicit Stopwatch(double* seconds) : seconds_(seconds) {}
  ~Stopwatch() {
    *seconds_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }
  Stopwatch(const Stopwatch&) = delete;
  Stopwatch& operator=(const Stopwatch&) = delete;

 private:
  double* seconds_;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

}  // namespace

Connection ConnectToServer(const PeerOptions& options, contract::Store& store, int64_t server) {
  const auto now = std::chrono::steady_clock::now();
  const Result<std::string> where = store.Get(AddressKey(server), now + kStoreTime);
  if (where.status().code() == StatusCode::kAborted || where.status().code() == StatusCode::kUnavailable) {
    throw CollectiveLost("the job's store: " + where.status().message());
  }
  if (!where.ok()) throw ConnectionLost(where.status().message());
  const size_t space = where->find(' ');
  if (space == std::string::npos) throw ConnectionLost("no address: " + *where);
  const Deadline deadline = std::chrono::steady_clock::now() + kConnectTime;
  Connection connection =
      Connection::Connect(where->substr(0, space), where->substr(space + 1), options.self, deadline);
  const auto attached = connection.Ask<Attached>(options.who, deadline);
  if (!attached.refused.empty()) throw BadModel("parameter server: " + attached.refused);
  return connection;
}

bool IsFinished(contract::Store& store) {
  const Result<int64_t> finished = store.Add(kFinishedKey, 0, std::chrono::steady_clock::now() + kStoreTime);
  return finished.ok() && *finished > 0;
}

Client::Client(PeerOptions options, contract::Store& store, std::vector<std::vector<Piece>> pieces)
    : options_(std::move(options)),
      store_(store),
      pieces_(std::move(pieces)),
      connections_(pieces_.size()),
      have_(pieces_.size(), -1) {}

Connection& Client::At(size_t server) {
  if (!connections_[server]) throw ConnectionLost("not connected");
  return *connections_[server];
}

void Client::Connect() {
  for (size_t i = 0; i < connections_.size(); ++i) {
    if (!connections_[i]) connections_[i].emplace(ConnectToServer(options_, store_, static_cast<int64_t>(i)));
  }
}

template <typename Talk>
bool Client::Try(const Talk& talk) {
  const Stopwatch watch(&waited_);
  try {
    talk();
    return true;
  } catch (const ConnectionLost&) {
    for (auto& connection : connections_) connection.reset();
    return false;
  }
}

Work Client::NextWork() {
  const Clock::time_point start = Clock::now();
  while (true) {
    Work work;
    const bool talked = Try([&] {
      Connect();
      work = At(0).Ask<Work>(Take{}, Clock::now() + options_.answer_time);
    });
    if (talked) return work;
    if (IsFinished(store_)) return {.task = Task::kEnd};
    if (Clock::now() - start > options_.away_time) {
      throw CollectiveLost("the parameter servers have not been reached for " +
                           std::to_string(options_.away_time.count() / 1000) + " s");
    }
    std::this_thread::sleep_for(kRetryPause);
  }
}

Client::Fetched Client::Pull(const Work& work, std::span<float> parameters) {
  if (have_era_ != work.era) {
    have_.assign(have_.size(), -1);
    have_era_ = work.era;
  }
  Fetched fetched;
  const bool talked = Try([&] {
    const Deadline deadline = Clock::now() + options_.answer_time;
    for (size_t i = 0; i < pieces_.size(); ++i) {
      At(i).Send(Encode(parameter_server::Pull{
                     .era = work.era, .least_version = work.version, .have_version = have_[i]}),
                 deadline);
    }
    fetched.valid = true;
    for (size_t i = 0; i < pieces_.size(); ++i) {
      const auto answer = At(i).ReceiveAs<Parameters>(deadline);
      fetched.valid = fetched.valid && answer.result != Pulled::kVoid;
      if (answer.result == Pulled::kHere) {
        have_[i] = -1;  // until they are
        At(i).ReceiveFloats(parameters.data(), pieces_[i], deadline);
        have_[i] = answer.version;
        fetched.changed = true;
      }
    }
  });
  fetched.valid = fetched.valid && talked;
  fetched.version = have_.front();
  return fetched;
}

void Client::HaveParameters() {
  Try([&] { At(0).Ask<Noted>(parameter_server::HaveParameters{}, Clock::now() + options_.answer_time); });
}

bool Client::Push(const Work& work, std::span<const float> gradients, const Commit& report) {
  bool counts = false;
  Try([&] {
    const Deadline deadline = Clock::now() + options_.answer_time;
    const std::string stage = Encode(Stage{.era = work.era, .lease = work.lease});
    for (size_t i = 0; i < pieces_.size(); ++i) {
      At(i).SendWith(stage, gradients.data(), pieces_[i], deadline);
    }
    bool kept = true;
    for (size_t i = 0; i < pieces_.size(); ++i) kept = At(i).ReceiveAs<Staged>(deadline).kept && kept;
    Commit commit = report;
    commit.complete = kept;
    commit.era = work.era;
    commit.lease = work.lease;
    counts = At(0).Ask<Committed>(commit, deadline).counts;
  });
  return counts;
}

void Client::Leave() {
  Try([&] { At(0).Ask<Noted>(parameter_server::Leave{}, Clock::now() + options_.answer_time); });
}

}  // namespace lockstep::trainer::parameter_server
