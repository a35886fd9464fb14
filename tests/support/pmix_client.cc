// A rank that meets the others as MPI_Init and MPI_Finalize do: tells its own word to all, and prints those
// of all. A file as an argument: the first rank to make it is killed before it has told.

#include <fcntl.h>
#include <pmix.h>
#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>

namespace {

void Check(pmix_status_t status, const char* call) {
  if (status == PMIX_SUCCESS) return;
  std::fprintf(stderr, "%s: %s\n", call, PMIx_Error_string(status));
  std::exit(1);
}

pmix_proc_t Process(const pmix_proc_t& self, pmix_rank_t rank) {
  pmix_proc_t process;
  PMIX_LOAD_PROCID(&process, self.nspace, rank);
  return process;
}

pmix_value_t* Get(const pmix_proc_t& process, const char* key) {
  pmix_value_t* value = nullptr;
  Check(PMIx_Get(&process, key, nullptr, 0, &value), key);
  return value;
}

void Fence(const pmix_proc_t& self) {
  const pmix_proc_t all = Process(self, PMIX_RANK_WILDCARD);
  pmix_info_t collect;
  bool yes = true;
  PMIX_INFO_LOAD(&collect, PMIX_COLLECT_DATA, &yes, PMIX_BOOL);
  Check(PMIx_Fence(&all, 1, &collect, 1), "PMIx_Fence");
}

}  // namespace

int main(int argc, char** argv) {
  pmix_proc_t self;
  Check(PMIx_Init(&self, nullptr, 0), "PMIx_Init");
  if (argc > 1 && ::open(argv[1], O_CREAT | O_EXCL | O_WRONLY, 0600) >= 0) ::raise(SIGKILL);
  const uint32_t size = Get(Process(self, PMIX_RANK_WILDCARD), PMIX_JOB_SIZE)->data.uint32;
  std::string word = "word-" + std::to_string(self.rank);
  pmix_value_t value;
  PMIX_VALUE_LOAD(&value, word.c_str(), PMIX_STRING);
  Check(PMIx_Put(PMIX_GLOBAL, "word", &value), "PMIx_Put");
  Check(PMIx_Commit(), "PMIx_Commit");
  Fence(self);
  std::string heard;
  for (pmix_rank_t rank = 0; rank < size; ++rank) {
    heard += std::string(" ") + Get(Process(self, rank), "word")->data.string + "@" +
             Get(Process(self, rank), PMIX_HOSTNAME)->data.string;
  }
  std::printf("rank %u of %u local %u heard%s\n", self.rank, size, Get(self, PMIX_LOCAL_RANK)->data.uint16,
              heard.c_str());
  Fence(self);
  Check(PMIx_Finalize(nullptr, 0), "PMIx_Finalize");
  return 0;
}
