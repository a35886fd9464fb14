#include "tests/bench/compute/products.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <oneapi/dnnl/dnnl.hpp>
#include <unordered_map>

namespace lockstep::bench {
namespace {

using dnnl::memory;
using Tag = memory::format_tag;
using Type = memory::data_type;

struct Candidate {
  std::string name;
  std::function<void()> run;
};

struct Shape {
  int64_t batch = 0;
  int64_t inputs = 0;
  int64_t units = 0;
};

class Builder {
 public:
  Builder(Type type, std::vector<trainer::Buffer>& buffers)
      : engine_(dnnl::engine::kind::cpu, 0), stream_(engine_), type_(type), buffers_(buffers) {}

  std::vector<Candidate> Forward(const Shape& s, Type to) {
    const memory::desc x({s.batch, s.inputs}, type_, Tag::ab);
    const memory::desc y({s.batch, s.units}, to, Tag::ab);
    std::vector<Candidate> all;
    for (const Tag tag : {Tag::ab, Tag::ba, Tag::any}) {
      AddMatmul(all, tag, x, memory::desc({s.inputs, s.units}, type_, tag), y);
    }
    for (const Tag tag : {Tag::io, Tag::oi, Tag::any}) {
      Try([&] {
        const auto pd = InnerProduct(s, tag, to);
        Add(all, pd, dnnl::inner_product_forward(pd), tag,
            {{DNNL_ARG_SRC, pd.src_desc()},
             {DNNL_ARG_WEIGHTS, pd.weights_desc()},
             {DNNL_ARG_DST, pd.dst_desc()}});
      });
    }
    return all;
  }

  std::vector<Candidate> BackwardWeights(const Shape& s) {
    std::vector<Candidate> all;
    AddMatmul(all, Tag::ab, memory::desc({s.inputs, s.batch}, type_, Tag::ba),
              memory::desc({s.batch, s.units}, type_, Tag::ab),
              memory::desc({s.inputs, s.units}, Type::f32, Tag::ab));
    AddMatmul(all, Tag::ba, memory::desc({s.units, s.batch}, type_, Tag::ba),
              memory::desc({s.batch, s.inputs}, type_, Tag::ab),
              memory::desc({s.units, s.inputs}, Type::f32, Tag::ab));
    for (const Tag tag : {Tag::io, Tag::oi, Tag::any}) {
      Try([&] {
        const memory::desc x({s.batch, s.inputs}, type_, Tag::nc);
        const memory::desc y({s.batch, s.units}, type_, Tag::nc);
        const memory::desc w({s.units, s.inputs}, Type::f32, tag);
        const dnnl::inner_product_backward_weights::primitive_desc pd({x, w, y}, Attributes(), engine_,
                                                                      InnerProduct(s, tag, type_));
        Add(all, pd, dnnl::inner_product_backward_weights(pd), tag,
            {{DNNL_ARG_SRC, pd.src_desc()},
             {DNNL_ARG_DIFF_WEIGHTS, pd.diff_weights_desc()},
             {DNNL_ARG_DIFF_DST, pd.diff_dst_desc()}});
      });
    }
    return all;
  }

  std::vector<Candidate> BackwardData(const Shape& s) {
    const memory::desc dy({s.batch, s.units}, type_, Tag::ab);
    const memory::desc dx({s.batch, s.inputs}, type_, Tag::ab);
    std::vector<Candidate> all;
    for (const Tag tag : {Tag::ab, Tag::ba, Tag::any}) {
      AddMatmul(all, tag, dy, memory::desc({s.units, s.inputs}, type_, tag), dx);
    }
    for (const Tag tag : {Tag::io, Tag::oi, Tag::any}) {
      Try([&] {
        const memory::desc w({s.units, s.inputs}, type_, tag);
        const dnnl::inner_product_backward_data::primitive_desc pd({dx, w, dy}, Attributes(), engine_,
                                                                   InnerProduct(s, tag, type_));
        Add(all, pd, dnnl::inner_product_backward_data(pd), tag,
            {{DNNL_ARG_DIFF_SRC, pd.diff_src_desc()},
             {DNNL_ARG_WEIGHTS, pd.weights_desc()},
             {DNNL_ARG_DIFF_DST, pd.diff_dst_desc()}});
      });
    }
    return all;
  }

 private:
  // A combination that oneDNN lacks is not a candidate.
  template <typename Make>
  static void Try(Make&& make) {
    try {
      make();
    } catch (const dnnl::error&) {
    }
  }

  static dnnl::primitive_attr Attributes() {
    dnnl::primitive_attr attributes;
    attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
    return attributes;
  }

  dnnl::inner_product_forward::primitive_desc InnerProduct(const Shape& s, Tag tag, Type to) {
    return {{dnnl::prop_kind::forward_training, memory::desc({s.batch, s.inputs}, type_, Tag::nc),
             memory::desc({s.units, s.inputs}, type_, tag), memory::desc({s.batch, s.units}, to, Tag::nc)},
            Attributes(),
            engine_};
  }

  void AddMatmul(std::vector<Candidate>& all, Tag tag, const memory::desc& a, const memory::desc& b,
                 const memory::desc& c) {
    Try([&] {
      const dnnl::matmul::primitive_desc pd({a, b, c}, Attributes(), engine_);
      Add(all, pd, dnnl::matmul(pd), tag,
          {{DNNL_ARG_SRC, pd.src_desc()},
           {DNNL_ARG_WEIGHTS, pd.weights_desc()},
           {DNNL_ARG_DST, pd.dst_desc()}});
    });
  }

  template <typename Descriptor>
  void Add(std::vector<Candidate>& all, const Descriptor& descriptor, const dnnl::primitive& primitive,
           Tag tag, std::vector<std::pair<int, memory::desc>> places) {
    places.emplace_back(DNNL_ARG_SCRATCHPAD, descriptor.scratchpad_desc());
    std::unordered_map<int, memory> arguments;
    for (const auto& [argument, desc] : places) {
      buffers_.push_back(trainer::ZeroedHostBuffer(desc.get_size()));
      arguments.emplace(argument, memory(desc, engine_, buffers_.back().data()));
    }
    const char* layout = tag == Tag::any                      ? "blocked"
                         : (tag == Tag::ab || tag == Tag::ba) ? "matmul"
                                                              : "plain";
    all.push_back({std::string(descriptor.impl_info_str()) + " " + layout,
                   [primitive, arguments, stream = stream_]() { primitive.execute(stream, arguments); }});
  }

  dnnl::engine engine_;
  dnnl::stream stream_;
  Type type_;
  std::vector<trainer::Buffer>&
      buffers_;  // the trainer's own memory, so that the limit has its huge pages too
};

double Seconds(const std::function<void()>& call) {
  const auto start = std::chrono::steady_clock::now();
  call();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace

BareProducts::BareProducts(const std::vector<int64_t>& widths, int64_t batch, trainer::DataType type) {
  const Type input = type == trainer::DataType::kBFloat16 ? Type::bf16 : Type::f32;
  Builder builder(input, buffers_);
  const auto keep_fastest = [&](const char* pass, const Shape& s, const std::vector<Candidate>& candidates) {
    std::vector<double> best(candidates.size(), 1e9);
    for (int round = 0; round < 30; ++round) {
      for (size_t i = 0; i < candidates.size(); ++i) best[i] = std::min(best[i], Seconds(candidates[i].run));
    }
    const auto fastest = static_cast<size_t>(std::min_element(best.begin(), best.end()) - best.begin());
    const double flops = 2.0 * static_cast<double>(s.batch * s.inputs * s.units);
    char line[200];
    std::snprintf(line, sizeof line, "%-16s %4ld x %4ld x %4ld %8.1f us %7.1f GFLOP/s  %s", pass, s.batch,
                  s.inputs, s.units, best[fastest] * 1e6, flops / best[fastest] / 1e9,
                  candidates[fastest].name.c_str());
    report_.emplace_back(line);
    products_.push_back(candidates[fastest].run);
    flops_ += flops;
  };
  const auto layers = widths.size() - 1;
  const auto shape = [&](size_t layer) { return Shape{batch, widths[layer], widths[layer + 1]}; };
  for (size_t i = 0; i < layers; ++i) {
    keep_fastest("forward", shape(i), builder.Forward(shape(i), i + 1 == layers ? Type::f32 : input));
  }
  for (size_t i = layers; i-- > 0;) {
    if (i > 0) keep_fastest("backward data", shape(i), builder.BackwardData(shape(i)));
    keep_fastest("backward weights", shape(i), builder.BackwardWeights(shape(i)));
  }
}

void BareProducts::Step() const {
  for (const auto& product : products_) product();
}

}  // namespace lockstep::bench
