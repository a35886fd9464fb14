#include "trainer/backend/cpu/primitive.h"

#include <utility>

namespace lockstep::trainer::cpu {

Primitive::Primitive(Context& context, std::string what, const dnnl::primitive& primitive,
                     const dnnl::memory::desc& scratchpad, std::initializer_list<Argument> arguments)
    : context_(context), what_(std::move(what)), primitive_(primitive) {
  const auto add = [this](int name, const dnnl::memory::desc& descriptor) {
    memories_[count_] = dnnl::memory(descriptor, context_.engine(), DNNL_MEMORY_NONE);
    arguments_[count_] = {name, memories_[count_].get()};
    ++count_;
  };
  for (const Argument& argument : arguments) {
    if (argument.descriptor.data.ndims > 0) add(argument.name, argument.descriptor);
  }
  add(DNNL_ARG_SCRATCHPAD, scratchpad);
  --count_;
  context.ReserveScratchpad(scratchpad.get_size());
}

void Primitive::Run(std::initializer_list<const void*> addresses) {
  size_t index = 0;
  for (const void* address : addresses) {
    if (index < count_) Set(index++, address);
  }
  Set(count_, context_.scratchpad());
  const dnnl_status_t status = dnnl_primitive_execute(primitive_.get(), context_.stream().get(),
                                                      static_cast<int>(count_ + 1), arguments_.data());
  if (status != dnnl_success) ThrowDnnlError(what_, dnnl::error(status, "execution failed"));
}

void Primitive::Set(size_t index, const void* data) {
  if (handles_[index] == data) return;
  handles_[index] = data;
  memories_[index].set_data_handle(const_cast<void*>(data));
}

dnnl::primitive_attr PlainAttributes() {
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  return attributes;
}

}  // namespace lockstep::trainer::cpu
