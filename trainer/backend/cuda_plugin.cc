#include "trainer/backend/cuda_plugin.h"

#include <dlfcn.h>

#include <cstdlib>
#include <filesystem>
#include <string_view>
#include <utility>

namespace lockstep::trainer {
namespace {

constexpr const char* kOverride = "LOCKSTEP_CUDA_PLUGIN";
constexpr const char* kFile = "liblockstep-cuda.so";

std::filesystem::path FolderOfProgram() {
  std::error_code error;
  return std::filesystem::read_symlink("/proc/self/exe", error).parent_path();
}

std::string FindFile(std::string* why) {
  if (const char* given = std::getenv(kOverride); given != nullptr && *given != '\0') return given;
  const std::filesystem::path folder = FolderOfProgram();
  for (const auto& place : {folder / kFile, folder.parent_path() / "lib" / kFile}) {
    std::error_code error;
    if (std::filesystem::exists(place, error)) return place.string();
  }
  *why = "this build has no " + std::string(kFile) + " beside the program or in ../lib";
  return "";
}

}  // namespace

std::optional<CudaPlugin> CudaPlugin::Open(std::string* why) {
  std::string path = FindFile(why);
  if (path.empty()) return std::nullopt;
  // Lazily: an older NCCL lacks functions that are called only where its version is asked first.
  void* library = ::dlopen(path.c_str(), RTLD_LAZY | RTLD_LOCAL);
  if (library == nullptr) {
    *why = path + " cannot be opened: " + ::dlerror();
    return std::nullopt;
  }
  const auto* entry = static_cast<const CudaEntry*>(::dlsym(library, kCudaEntry));
  if (entry == nullptr) {
    *why = path + " is no CUDA library of this program: it has no " + kCudaEntry;
    return std::nullopt;
  }
  if (std::string_view(entry->build) != kCudaBuild) {
    *why = path + " is of version " + entry->build + ", and this program of " + kCudaBuild;
    return std::nullopt;
  }
  return CudaPlugin(library, entry, std::move(path));
}

void* CudaPlugin::Symbol(const char* name) const { return ::dlsym(library_, name); }

}  // namespace lockstep::trainer
