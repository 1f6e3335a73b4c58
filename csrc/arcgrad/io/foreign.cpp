#include "arcgrad/io/foreign.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <utility>

#include "arcgrad/runtime/error.h"
#include "arcgrad/runtime/interrupt_poll.h"

namespace arcgrad {

LabelRule::LabelRule(const char* op, int32_t offset) : op_(op), offset_(offset) {
  require(offset >= 0, op, "label_offset must be 0 or more, but it is ", offset);
}

std::string LabelRule::wanted() const {
  return text("must be 0 (epsilon) or ", std::max(offset_, 1), " or more",
              offset_ > 1 ? text(" with label_offset=", offset_) : "");
}

void LabelRule::fail_write(int32_t label) const {
  if (label < 0)
    fail(op_, "labels must be epsilon (-1), or 0 or more, in this format, but an arc has ", label);
  if (label == 0)
    fail(op_,
         "labels must be 1 or more in this format, where 0 is epsilon, but an arc has the label 0; "
         "pass label_offset=1, the default");
  fail(op_, "labels must fit 32 bits, but label ", label, " is written as ",
       int64_t{label} + offset_);
}

Graph to_graph(ForeignGraph content, const LoadOptions& options, const char* op,
               const std::string& name) {
  Arrays& arrays = content.arrays;
  if (options.dtype) content.weights = content.weights.cast(*options.dtype);
  if (arrays.olabel == arrays.ilabel) arrays.olabel.clear();
  const auto& ends = content.accept_weights;
  if (std::ranges::any_of(ends, [](double weight) { return weight != 0; })) {
    const Weights& old = content.weights;
    const auto first = static_cast<size_t>(old.size()) + arrays.start.size();
    Weights all = Weights::zeros(static_cast<int64_t>(first + ends.size()), old.dtype());
    dispatch(old.dtype(), [&](auto zero) {
      using T = decltype(zero);
      const auto from = old.view<T>();
      const auto to = all.fill<T>();
      std::copy(from.begin(), from.end(), to.begin());
      std::ranges::transform(ends, to.begin() + static_cast<std::ptrdiff_t>(first),
                             [](double weight) { return static_cast<T>(weight); });
    });
    content.weights = std::move(all);
    arrays.has_node_weights = true;
  }
  try {
    return Graph::from_arrays(std::move(arrays), std::move(content.weights));
  } catch (const std::invalid_argument& error) {
    fail(op, name, " must hold a valid graph, but ", error.what());
  }
}

void CompactLattice::add_arc(int32_t src, int32_t dst, int32_t word, double weight) {
  arcs_.push_back({src, dst, word, weight, labels_.size()});
}

ForeignGraph CompactLattice::expand(int64_t num_states, const char* op,
                                    const std::string& name) && {
  ForeignGraph out;
  Arrays& arrays = out.arrays;
  std::vector<double> weights;
  std::vector<std::pair<int32_t, double>> accept;
  int64_t num_nodes = num_states;
  const auto new_node = [&] {
    require(num_nodes < std::numeric_limits<int32_t>::max(), op, name,
            " must have at most 2^31 - 1 nodes as a graph, but it has more");
    return static_cast<int32_t>(num_nodes++);
  };
  InterruptPoll poll;
  for (size_t k = 0; k < arcs_.size(); ++k) {
    auto [src, dst, word, weight, label] = arcs_[k];
    const size_t end = k + 1 < arcs_.size() ? arcs_[k + 1].first_label : labels_.size();
    if (dst == kNoState) {
      if (weight == -INFINITY) continue;
      if (label == end) {
        accept.emplace_back(src, weight);
        continue;
      }
      accept.emplace_back(dst = new_node(), 0.0);
    }
    const bool is_silent = label == end;
    for (const size_t stop = is_silent ? end + 1 : end; label < stop; ++label) {
      poll();
      const int32_t next = label + 1 < stop ? new_node() : dst;
      arrays.src.push_back(src);
      arrays.dst.push_back(next);
      arrays.ilabel.push_back(is_silent ? kEpsilon : labels_[label]);
      arrays.olabel.push_back(std::exchange(word, kEpsilon));
      weights.push_back(std::exchange(weight, 0.0));
      src = next;
    }
  }
  std::ranges::sort(accept);
  for (const auto& [node, weight] : accept) {
    arrays.accept.push_back(node);
    out.accept_weights.push_back(weight);
  }
  arrays.num_nodes = static_cast<int32_t>(num_nodes);
  out.weights = to_weights<double>(weights);
  return out;
}

void require_plausible(const char* op, const std::string& name, int64_t num_nodes, size_t size) {
  constexpr int64_t kFew = 1 << 20;
  require(num_nodes <= std::max(kFew, static_cast<int64_t>(size)), op, name,
          " must have at most 2^20 nodes, or one per byte, but it has ", num_nodes, " nodes in ",
          size, " bytes");
}

void require_numbers(const char* op, const std::string& name, const Weights& weights) {
  dispatch(weights.dtype(), [&](auto zero) {
    const auto values = weights.view<decltype(zero)>();
    const auto found = std::ranges::find_if(values, [](auto value) { return std::isnan(value); });
    require(found == values.end(), op, name,
            " must have weights that are numbers, inf or -inf, but ", "weight ",
            found - values.begin(), " is nan");
  });
}

void require_float32(const char* op, const Graph& graph, const char* format) {
  if (graph.dtype() == DType::float32) return;
  const Weights weights = graph.weights();
  const auto values = weights.view<double>();
  const auto changed = std::ranges::find_if(values, [](double value) {
    return !std::isnan(value) && static_cast<double>(static_cast<float>(value)) != value;
  });
  require(changed == values.end(), op, "weights must be float32 for ", format,
          ", but the graph has float64 weights, and weight ", changed - values.begin(),
          " would change; convert the graph to float32");
}

StateList::StateList(const char* op, const Graph& graph)
    : topology_(graph.topology_ptr()), out_(&topology_->out()), weights_(graph.weights()) {
  require_numbers(op, "the graph", weights_);
  ilabel_ = topology_->ilabel();
  olabel_ = topology_->olabel();
  dst_ = topology_->dst();
  num_states_ = topology_->num_nodes();
  const auto starts = topology_->start(), accepts = topology_->accept();
  const std::vector<double> start_weights = graph.start_weights();
  const std::vector<double> accept_weights = graph.accept_weights();
  if (starts.size() == 1) start_ = starts[0];
  if (starts.size() > 1 || (starts.size() == 1 && start_weights[0] != 0)) {
    require(num_states_ < std::numeric_limits<int32_t>::max(), op,
            "the graph must have room for one more node, but it has ", num_states_);
    start_ = num_states_++;
    for (size_t i = 0; i < starts.size(); ++i) entries_.push_back({starts[i], start_weights[i]});
  }
  accept_.assign(static_cast<size_t>(num_states_), -INFINITY);
  for (size_t i = 0; i < accepts.size(); ++i)
    accept_[static_cast<size_t>(accepts[i])] = accept_weights[i];
}

int32_t StateList::num_arcs(int32_t state) const {
  if (state == topology_->num_nodes()) return static_cast<int32_t>(entries_.size());
  const auto s = static_cast<size_t>(state);
  return out_->offset[s + 1] - out_->offset[s];
}

}  // namespace arcgrad
