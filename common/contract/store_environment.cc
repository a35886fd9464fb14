#include <charconv>
#include <cstdlib>
#include <limits>

#include "common/contract/environment.h"
#include "common/contract/store_client.h"

namespace lockstep::contract {

namespace {

Result<std::string> Variable(const char* name) {
  const char* value = std::getenv(name);
  if (value == nullptr || *value == '\0') {
    return FailedPrecondition(std::string("environment: ") + name +
                              " is not set; is this process started by lockstep run?");
  }
  return std::string(value);
}

Result<int64_t> Number(const char* name, int64_t maximum) {
  const Result<std::string> text = Variable(name);
  if (!text.ok()) return text.status();
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), value);
  if (error != std::errc() || end != text->data() + text->size() || value < 0 || value > maximum) {
    return FailedPrecondition(std::string("environment: ") + name + "=" + *text +
                              " is not a whole number from 0 to " + std::to_string(maximum));
  }
  return value;
}

}  // namespace

Result<std::unique_ptr<Store>> StoreFromEnvironment(Store::Deadline deadline) {
  const Result<std::string> address = Variable(kStoreAddress);
  if (!address.ok()) return address.status();
  const Result<std::string> token_file = Variable(kTokenFile);
  if (!token_file.ok()) return token_file.status();
  const Result<std::string> job = Variable(kJob);
  if (!job.ok()) return job.status();
  const Result<int64_t> generation = Number(kGeneration, std::numeric_limits<int64_t>::max());
  if (!generation.ok()) return generation.status();
  const Result<int64_t> rank = Number(kRank, std::numeric_limits<int32_t>::max());
  if (!rank.ok()) return rank.status();
  const char* run = std::getenv(kRun);
  const Result<Token> token = Token::Read(*token_file);
  if (!token.ok()) return token.status();

  Result<std::unique_ptr<StoreClient>> client = StoreClient::Connect({.address = *address,
                                                                      .token = *token,
                                                                      .job = *job,
                                                                      .generation = *generation,
                                                                      .rank = static_cast<int32_t>(*rank),
                                                                      .store_id = run == nullptr ? "" : run,
                                                                      .deadline = deadline});
  if (!client.ok()) return client.status();
  return std::unique_ptr<Store>(std::move(*client));
}

}  // namespace lockstep::contract
