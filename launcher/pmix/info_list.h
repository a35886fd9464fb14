#pragma once

#include <pmix.h>
#include <pmix_server.h>

#include <string>

namespace lockstep::pmix {

// Keys with values for PMIx, which copies them.
class InfoList {
 public:
  InfoList() : list_(PMIx_Info_list_start()) {}
  ~InfoList() {
    PMIx_Info_list_release(list_);
    if (converted_) PMIX_DATA_ARRAY_DESTRUCT(&array_);
  }
  InfoList(const InfoList&) = delete;
  InfoList& operator=(const InfoList&) = delete;

  void Add(const char* key, const std::string& value) {
    PMIx_Info_list_add(list_, key, value.c_str(), PMIX_STRING);
  }
  void Add(const char* key, uint32_t value) { PMIx_Info_list_add(list_, key, &value, PMIX_UINT32); }
  void Add(const char* key, uint16_t value) { PMIx_Info_list_add(list_, key, &value, PMIX_UINT16); }
  void AddRank(const char* key, pmix_rank_t value) { PMIx_Info_list_add(list_, key, &value, PMIX_PROC_RANK); }
  // A text that PMIx has made itself, of bytes that may be 0.
  void AddRegex(const char* key, const char* value) { PMIx_Info_list_add(list_, key, value, PMIX_REGEX); }
  void Add(const char* key, InfoList& values) {
    PMIx_Info_list_add(list_, key, &values.Convert(), PMIX_DATA_ARRAY);
  }

  // Nothing may be added any more.
  pmix_data_array_t& Convert() {
    if (!converted_) PMIx_Info_list_convert(list_, &array_);
    converted_ = true;
    return array_;
  }

 private:
  void* list_;
  pmix_data_array_t array_{};
  bool converted_ = false;
};

}  // namespace lockstep::pmix
