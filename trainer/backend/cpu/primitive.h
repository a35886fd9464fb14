#pragma once

#include <array>
#include <initializer_list>
#include <oneapi/dnnl/dnnl.hpp>
#include <string>

#include "trainer/backend/cpu/context.h"

namespace lockstep::trainer::cpu {

// A primitive of oneDNN ready to run: it and its arguments, whose addresses may change between executions.
// Executed through the C interface, because dnnl.hpp's execute() builds a map and a vector each time.
class Primitive {
 public:
  struct Argument {
    int name = 0;  // DNNL_ARG_SRC …
    dnnl::memory::desc descriptor;
  };

  // Of the arguments the last may have an empty descriptor: it is then left out. `what` is for messages.
  // `scratchpad`: the descriptor's; the primitive is made with scratchpad_mode::user.
  Primitive(Context& context, std::string what, const dnnl::primitive& primitive,
            const dnnl::memory::desc& scratchpad, std::initializer_list<Argument> arguments);

  // The addresses, in the order of the arguments.
  void Run(std::initializer_list<const void*> addresses);

 private:
  static constexpr size_t kMost = 6;

  void Set(size_t index, const void* data);

  Context& context_;
  std::string what_;
  dnnl::primitive primitive_;
  size_t count_ = 0;  // without the scratchpad, which is the last
  std::array<dnnl::memory, kMost> memories_;
  std::array<const void*, kMost> handles_{};
  std::array<dnnl_exec_arg_t, kMost> arguments_{};
};

// With the scratchpad from the caller, and nothing else.
dnnl::primitive_attr PlainAttributes();

}  // namespace lockstep::trainer::cpu
