#include "launcher/kube/token_source.h"

#include <algorithm>

#include "launcher/kube/read_file.h"

namespace lockstep::kube {

namespace {

constexpr std::chrono::minutes kReadAgain{1};

}  // namespace

TokenSource::TokenSource(const Config& config) : file_(config.token_file), token_(config.token) {
  if (!file_.empty()) Read();
}

std::string TokenSource::Get() {
  const std::lock_guard lock(mutex_);
  if (!file_.empty() && std::chrono::steady_clock::now() - read_at_ >= kReadAgain) Read();
  return token_;
}

bool TokenSource::Renew(const std::string& token) {
  if (file_.empty()) return false;
  const std::lock_guard lock(mutex_);
  if (token_ == token) Read();
  return token_ != token;
}

void TokenSource::Read() {
  read_at_ = std::chrono::steady_clock::now();
  auto text = ReadSmallFile(file_);
  if (!text.ok()) return;
  // What cannot stand in a header line is no token.
  std::erase_if(*text, [](unsigned char c) { return c <= ' ' || c == 127; });
  if (!text->empty()) token_ = *std::move(text);
}

}  // namespace lockstep::kube
