#include <algorithm>
#include <cstring>

#include "arcgrad/io/foreign.h"
#include "arcgrad/io/formats.h"
#include "arcgrad/runtime/interrupt_poll.h"

// The binary format of gtn: the numbers of nodes, arcs, start and accept nodes, the start and the
// accept nodes, four numbers per arc (src dst ilabel olabel), then the weights as floats. It has no
// magic number: only the size of a file tells that it is one.

namespace arcgrad {
namespace {

constexpr size_t kNumCounts = 4, kNumbersPerArc = 5;

}  // namespace

bool is_gtn(std::string_view bytes) {
  int32_t counts[kNumCounts];
  if (bytes.size() < sizeof(counts)) return false;
  std::memcpy(counts, bytes.data(), sizeof(counts));
  if (*std::ranges::min_element(counts) < 0) return false;
  const auto [nodes, arcs, starts, accepts] = counts;
  const uint64_t numbers = kNumCounts + static_cast<uint64_t>(starts) +
                           static_cast<uint64_t>(accepts) +
                           kNumbersPerArc * static_cast<uint64_t>(arcs);
  return bytes.size() == sizeof(int32_t) * numbers;
}

Graph parse_gtn(std::string_view bytes, const char* op, const std::string& name) {
  if (!is_gtn(bytes)) fail(op, name, " must have the size that its header states, but it has not");
  ByteReader reader(bytes, op, name);
  ForeignGraph out;
  Arrays& arrays = out.arrays;
  arrays.num_nodes = reader.get<int32_t>();
  require_plausible(op, name, arrays.num_nodes, bytes.size());
  const auto num_arcs = reader.get<int32_t>();
  const auto num_start = reader.get<int32_t>(), num_accept = reader.get<int32_t>();
  const auto get_ids = [&](Column& to, int32_t count) {
    to.resize(static_cast<size_t>(count));
    const auto from = reader.take(to.size() * sizeof(int32_t));
    if (!to.empty()) std::memcpy(to.data(), from.data(), from.size());
  };
  get_ids(arrays.start, num_start);
  get_ids(arrays.accept, num_accept);
  const auto rows = reader.take(static_cast<uint64_t>(num_arcs), 4 * sizeof(int32_t));
  for (Column* column : {&arrays.src, &arrays.dst, &arrays.ilabel, &arrays.olabel})
    column->resize(static_cast<size_t>(num_arcs));
  InterruptPoll poll;
  for (size_t a = 0; a < arrays.src.size(); ++a) {
    poll();
    int32_t row[4];
    std::memcpy(row, rows.data() + a * sizeof(row), sizeof(row));
    arrays.src[a] = row[0];
    arrays.dst[a] = row[1];
    arrays.ilabel[a] = row[2];
    arrays.olabel[a] = row[3];
  }
  out.weights = Weights::uninitialized(num_arcs, DType::float32);
  const auto values = out.weights.fill<float>();
  if (!values.empty())
    std::memcpy(values.data(), reader.take(values.size_bytes()).data(), values.size_bytes());
  return to_graph(std::move(out), {}, op, name);
}

void refuse_node_weights_in_gtn(const char* op, const Graph& graph) {
  const Topology& topology = graph.topology();
  require(!topology.has_node_weights(), op,
          "the graph must have no node weights, which the formats of gtn do not have, but it has ",
          topology.num_weights() - topology.num_arcs(), "; format 'arcgrad' keeps them");
}

std::string write_gtn(const char* op, const Graph& graph) {
  require_float32(op, graph, "gtn");
  const Topology& topology = graph.topology();
  refuse_node_weights_in_gtn(op, graph);
  std::string out;
  const auto put_ids = [&](std::span<const int32_t> ids) {
    out.append(reinterpret_cast<const char*>(ids.data()), ids.size_bytes());
  };
  const int32_t counts[kNumCounts] = {topology.num_nodes(), topology.num_arcs(),
                                      static_cast<int32_t>(topology.start().size()),
                                      static_cast<int32_t>(topology.accept().size())};
  out.reserve(sizeof(int32_t) * (kNumCounts + topology.start().size() + topology.accept().size() +
                                 kNumbersPerArc * topology.src().size()));
  put_ids(counts);
  put_ids(topology.start());
  put_ids(topology.accept());
  const auto src = topology.src(), dst = topology.dst();
  const auto ilabel = topology.ilabel(), olabel = topology.olabel();
  InterruptPoll poll;
  for (size_t a = 0; a < src.size(); ++a) {
    poll();
    const int32_t row[] = {src[a], dst[a], ilabel[a], olabel[a]};
    put_ids(row);
  }
  const Weights weights = graph.weights().cast(DType::float32);
  const auto values = weights.view<float>();
  out.append(reinterpret_cast<const char*>(values.data()), values.size_bytes());
  return out;
}

}  // namespace arcgrad
