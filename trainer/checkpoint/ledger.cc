#include "trainer/checkpoint/ledger.h"

#include <fcntl.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstring>
#include <span>
#include <type_traits>
#include <utility>

#include "trainer/checkpoint/crc32c.h"

namespace lockstep::trainer::checkpoint {
namespace {

struct StoredRecord {
  LedgerRecord record;
  uint32_t reserved = 0;
  uint32_t crc = 0;  // of what comes before
};
static_assert(std::is_trivially_copyable_v<StoredRecord> && sizeof(StoredRecord) == 56);

uint32_t CrcOf(const StoredRecord& stored) {
  return Crc32c(std::as_bytes(std::span(&stored, 1)).first(offsetof(StoredRecord, crc)));
}

Status Write(int fd, const LedgerRecord& record) {
  StoredRecord stored{.record = record};
  stored.crc = CrcOf(stored);
  ssize_t n;
  do {
    n = ::write(fd, &stored, sizeof stored);
  } while (n < 0 && errno == EINTR);
  if (n < 0) return Status::FromErrno(errno, "writing the ledger");
  return n == sizeof stored ? Status() : ResourceExhausted("writing the ledger: no space for a record");
}

std::string Text(const LedgerRecord& record) {
  return "step " + std::to_string(record.step) + " (epoch " + std::to_string(record.epoch) + ", samples " +
         std::to_string(record.first) + " to " + std::to_string(record.first + record.count) + ")";
}

// The records that count, in the order of their steps from 1.
Result<std::vector<LedgerRecord>> Committed(const std::vector<LedgerRecord>& ledger, LedgerSummary* summary) {
  std::vector<LedgerRecord> committed;
  uint64_t writer = 0;
  for (const LedgerRecord& record : ledger) {
    const auto done = static_cast<int64_t>(committed.size());
    if (record.count == 0) {
      if (record.step < 0 || record.step > done) {
        return FailedPrecondition("generation " + std::to_string(record.generation) + " resumes from step " +
                                  std::to_string(record.step) + ", but only " + std::to_string(done) +
                                  " were done");
      }
      summary->repeated += done - record.step;
      summary->generations += 1;
      committed.resize(static_cast<size_t>(record.step));
      writer = record.writer;
    } else if (record.writer == writer) {
      if (record.step != done + 1)
        return FailedPrecondition(Text(record) + " comes after step " + std::to_string(done));
      committed.push_back(record);
    }
  }
  summary->steps = static_cast<int64_t>(committed.size());
  return committed;
}

}  // namespace

Result<LedgerWriter> LedgerWriter::Open(const std::string& path, int64_t generation, int64_t resumed_step) {
  UniqueFd fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
  struct stat status;
  if (!fd || ::fstat(fd.get(), &status) != 0) return Status::FromErrno(errno, path);
  const off_t torn = status.st_size % static_cast<off_t>(sizeof(StoredRecord));
  if (torn != 0 && ::ftruncate(fd.get(), status.st_size - torn) != 0) return Status::FromErrno(errno, path);
  uint64_t writer = 0;
  if (::getrandom(&writer, sizeof writer, 0) != sizeof writer) return Status::FromErrno(errno, "getrandom");
  LOCKSTEP_RETURN_IF_ERROR(
      Write(fd.get(), {.writer = writer, .generation = generation, .step = resumed_step}));
  return LedgerWriter(std::move(fd), writer, generation);
}

Result<LedgerWriter> LedgerWriter::Open(const std::string& path, int64_t generation, int64_t resumed_step,
                                        int64_t epoch, int64_t first, int64_t count) {
  LedgerSummary noted;
  if (count > 0) {
    const Result<std::vector<LedgerRecord>> ledger = ReadLedger(path);
    if (ledger.ok()) (void)Committed(*ledger, &noted).ok();
  }
  if (count == 0 || noted.steps != resumed_step - 1) return Open(path, generation, resumed_step);
  Result<LedgerWriter> writer = Open(path, generation, resumed_step - 1);
  if (!writer.ok()) return writer;
  LOCKSTEP_RETURN_IF_ERROR(writer->Append(resumed_step, epoch, first, count));
  return writer;
}

Status LedgerWriter::Append(int64_t step, int64_t epoch, int64_t first, int64_t count) {
  if (count < 1) return InvalidArgument("ledger: a step of no samples");
  return Write(fd_.get(), {.writer = writer_,
                           .generation = generation_,
                           .step = step,
                           .epoch = epoch,
                           .first = first,
                           .count = count});
}

Result<std::vector<LedgerRecord>> ReadLedger(const std::string& path) {
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd) return Status::FromErrno(errno, path);
  std::vector<LedgerRecord> records;
  StoredRecord stored;
  for (size_t filled = 0;;) {
    const ssize_t n = ::read(fd.get(), reinterpret_cast<char*>(&stored) + filled, sizeof stored - filled);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return Status::FromErrno(errno, path);
    if (n == 0) return records;
    filled += static_cast<size_t>(n);
    if (filled < sizeof stored) continue;
    filled = 0;
    if (stored.crc != CrcOf(stored)) {
      return InvalidArgument(path + ": record " + std::to_string(records.size()) + " has a wrong checksum");
    }
    records.push_back(stored.record);
  }
}

Result<LedgerSummary> CommittedOnce(const std::vector<LedgerRecord>& ledger, int64_t samples,
                                    int64_t epochs) {
  LedgerSummary summary;
  const Result<std::vector<LedgerRecord>> committed = Committed(ledger, &summary);
  if (!committed.ok()) return committed.status();
  int64_t epoch = 0, done = 0;  // of the epoch
  for (const LedgerRecord& record : *committed) {
    if (epoch == epochs) return FailedPrecondition(Text(record) + " comes after the last epoch");
    if (record.epoch != epoch || record.first != done || record.count > samples - done) {
      return FailedPrecondition(Text(record) + " where sample " + std::to_string(done) + " of " +
                                std::to_string(samples) + " of epoch " + std::to_string(epoch) + " was next");
    }
    done += record.count;
    if (done < samples) continue;
    ++epoch;
    done = 0;
  }
  if (epoch < epochs) {
    return FailedPrecondition("it ends at sample " + std::to_string(done) + " of epoch " +
                              std::to_string(epoch) + "; there are " + std::to_string(epochs) + " epochs");
  }
  return summary;
}

}  // namespace lockstep::trainer::checkpoint
