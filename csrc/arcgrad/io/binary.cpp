#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <span>
#include <stdexcept>
#include <type_traits>

#include "arcgrad/io/file.h"
#include "arcgrad/io/formats.h"
#include "arcgrad/runtime/error.h"
#include "arcgrad/runtime/interrupt_poll.h"

// The binary format: a header, the start nodes, the accept nodes, src, dst, ilabel, olabel
// (transducers only), the weights, the symbols of both sides if there are any, and the CRC-64/XZ of
// all of it, in the byte order of the writer. With node weights, which the kind says, those of
// start and accept nodes follow those of arcs.

namespace arcgrad {
namespace {

constexpr std::array<char, 8> kMagic = {'\x89', 'a', 'r', 'c', 'g', 'r', 'a', 'd'};
constexpr uint32_t kByteOrder = 0x01020304, kOtherByteOrder = 0x04030201;
constexpr uint32_t kVersion = 2;

enum Kind : uint8_t {
  kAcceptor,
  kTransducer,
  kDense,
  kAcceptorWithNodeWeights,
  kTransducerWithNodeWeights
};

struct Header {
  std::array<char, 8> magic = kMagic;
  uint32_t byte_order = kByteOrder;
  uint32_t version = kVersion;
  uint32_t dtype = 0;
  uint32_t kind = kAcceptor;
  /// For a dense linear graph: frames, labels, 0, 0.
  int32_t num_nodes = 0, num_arcs = 0, num_start = 0, num_accept = 0;
  /// The bytes of the symbols of each side; kSame if the output side has those of the input side.
  uint64_t isymbols = 0, osymbols = 0;
};
static_assert(sizeof(Header) == 56 && std::has_unique_object_representations_v<Header>);

constexpr uint64_t kSame = ~uint64_t{0}, kMostSymbols = uint64_t{1} << 40;

using Checksum = uint64_t;

/// Slicing by eight: table k advances the remainder of one byte by k further bytes.
constexpr auto kRemainders = [] {
  constexpr uint64_t kPolynomial = 0xC96C5795D7870F42;
  std::array<std::array<uint64_t, 256>, 8> tables{};
  for (uint64_t byte = 0; byte < 256; ++byte) {
    uint64_t r = byte;
    for (int bit = 0; bit < 8; ++bit) r = (r >> 1U) ^ (r & 1U ? kPolynomial : 0);
    tables[0][byte] = r;
  }
  for (size_t k = 1; k < 8; ++k)
    for (size_t byte = 0; byte < 256; ++byte) {
      const uint64_t r = tables[k - 1][byte];
      tables[k][byte] = (r >> 8U) ^ tables[0][r & 255U];
    }
  return tables;
}();

Checksum checksum(std::string_view bytes) {
  const auto* p = reinterpret_cast<const unsigned char*>(bytes.data());
  size_t size = bytes.size();
  uint64_t r = ~uint64_t{0};
  InterruptPoll poll;
  for (; size >= 8; size -= 8, p += 8) {
    poll();
    uint64_t next = 0;
    for (size_t k = 0; k < 8; ++k) next ^= kRemainders[7 - k][((r >> (8 * k)) & 255U) ^ p[k]];
    r = next;
  }
  for (; size > 0; --size, ++p) r = (r >> 8U) ^ kRemainders[0][(r & 255U) ^ *p];
  return ~r;
}

template <class T>
void put(std::string& out, const T* data, size_t count) {
  out.append(reinterpret_cast<const char*>(data), count * sizeof(T));
}

void put(std::string& out, std::span<const int32_t> values) {
  put(out, values.data(), values.size());
}

/// Reads the arrays behind the header; their total length was checked before.
class Reader {
 public:
  explicit Reader(const char* at) : at_(at) {}
  Column get_ids(int32_t count) {
    Column out(static_cast<size_t>(count));
    get(out.data(), out.size() * sizeof(int32_t));
    return out;
  }
  Weights get_weights(int64_t count, DType dtype) {
    Weights out = Weights::uninitialized(count, dtype);
    dispatch(dtype, [&](auto zero) {
      const auto to = out.fill<decltype(zero)>();
      get(to.data(), to.size_bytes());
    });
    return out;
  }

  SymbolTablePtr get_symbols(uint64_t size, const char* op) {
    if (size == 0) return nullptr;
    at_ += size;
    return std::make_shared<const SymbolTable>(symbols_from_bytes({at_ - size, size}, op));
  }

 private:
  void get(void* to, size_t size) {
    if (size > 0) std::memcpy(to, at_, size);
    at_ += size;
  }
  const char* at_;
};

bool is_valid(const Header& h) {
  if (h.dtype > 1 || h.kind > kTransducerWithNodeWeights) return false;
  if (std::min({h.num_nodes, h.num_arcs, h.num_start, h.num_accept}) < 0) return false;
  if (h.isymbols > kMostSymbols || (h.osymbols > kMostSymbols && h.osymbols != kSame)) return false;
  if (h.kind != kDense) return true;
  constexpr int64_t kMax = std::numeric_limits<int32_t>::max();
  return h.num_nodes < kMax && int64_t{h.num_nodes} * h.num_arcs <= kMax && h.num_start == 0 &&
         h.num_accept == 0;
}

bool has_node_weights(const Header& h) { return h.kind > kDense; }
bool is_transducer(const Header& h) {
  return h.kind == kTransducer || h.kind == kTransducerWithNodeWeights;
}

int64_t num_weights(const Header& h) {
  if (h.kind == kDense) return int64_t{h.num_nodes} * h.num_arcs;
  return h.num_arcs + (has_node_weights(h) ? int64_t{h.num_start} + h.num_accept : 0);
}

/// The size in bytes of a file with this header.
uint64_t size_of(const Header& h) {
  const int64_t columns = h.kind == kDense ? 0 : is_transducer(h) ? 4 : 3;
  const auto ids =
      static_cast<uint64_t>(int64_t{h.num_start} + h.num_accept + columns * h.num_arcs);
  const uint64_t weights = (h.dtype == 0 ? 4 : 8) * static_cast<uint64_t>(num_weights(h));
  const uint64_t symbols = h.isymbols + (h.osymbols == kSame ? 0 : h.osymbols);
  return sizeof(Header) + 4 * ids + weights + symbols + sizeof(Checksum);
}

SymbolTables get_symbols(Reader& reader, const Header& h, const char* op, const std::string& name) {
  try {
    SymbolTables out;
    out.input = reader.get_symbols(h.isymbols, op);
    out.output = h.osymbols == kSame ? out.input : reader.get_symbols(h.osymbols, op);
    return out;
  } catch (const std::invalid_argument& error) {
    fail(op, name, " must hold valid symbols, but ", error.what());
  }
}

}  // namespace

bool is_arcgrad(std::string_view bytes) {
  const auto magic = bytes.substr(0, kMagic.size());
  return !bytes.empty() && std::equal(magic.begin(), magic.end(), kMagic.begin());
}

Graph parse_arcgrad(std::string_view bytes, const char* op, const std::string& name) {
  require(bytes.size() >= sizeof(Header) + sizeof(Checksum), op, name,
          " must be whole, but it has ", bytes.size(), " bytes, less than any graph");
  Header h;
  std::memcpy(&h, bytes.data(), sizeof(h));
  require(h.byte_order != kOtherByteOrder, op, name, " must have the byte order of this machine, ",
          "but it was written on a machine with the other one; use savetxt and loadtxt");
  constexpr const char* kDamaged = " must be intact, but its header is damaged";
  require(h.byte_order == kByteOrder && h.version > 0, op, name, kDamaged);
  require(h.version <= kVersion, op, name, " must have format version ", kVersion,
          " or older, but it has version ", h.version, "; a newer arcgrad reads it");
  require(is_valid(h), op, name, kDamaged);
  const uint64_t size = size_of(h);
  require(bytes.size() == size, op, name, " must have ", size, " bytes by its header, but it has ",
          bytes.size());
  const auto content = bytes.substr(0, bytes.size() - sizeof(Checksum));
  Checksum expected;
  std::memcpy(&expected, bytes.data() + content.size(), sizeof(expected));
  require(checksum(content) == expected, op, name,
          " must be intact, but its checksum does not fit its content");

  Reader reader(bytes.data() + sizeof(Header));
  const DType dtype = h.dtype == 0 ? DType::float32 : DType::float64;
  if (h.kind == kDense) {
    auto topology = std::make_shared<Topology>(h.num_nodes, h.num_arcs);
    Weights weights = reader.get_weights(topology->num_arcs(), dtype);
    Graph graph(std::move(topology), std::move(weights), true);
    if (h.isymbols + h.osymbols > 0) graph.set_symbols(get_symbols(reader, h, op, name));
    return graph;
  }
  Arrays arrays;
  arrays.num_nodes = h.num_nodes;
  arrays.start = reader.get_ids(h.num_start);
  arrays.accept = reader.get_ids(h.num_accept);
  arrays.src = reader.get_ids(h.num_arcs);
  arrays.dst = reader.get_ids(h.num_arcs);
  arrays.ilabel = reader.get_ids(h.num_arcs);
  if (is_transducer(h)) arrays.olabel = reader.get_ids(h.num_arcs);
  arrays.has_node_weights = has_node_weights(h);
  Weights weights = reader.get_weights(num_weights(h), dtype);
  // A correct checksum does not prove that the writer produced a valid graph.
  try {
    arrays.symbols = get_symbols(reader, h, op, name);
    return Graph::from_arrays(std::move(arrays), std::move(weights));
  } catch (const std::invalid_argument& error) {
    fail(op, name, " must hold a valid graph, but ", error.what());
  }
}

std::string write_arcgrad(const Graph& graph) {
  const Topology& topology = graph.topology();
  const Weights weights = graph.weights();
  Header h;
  h.dtype = weights.dtype() == DType::float32 ? 0 : 1;
  if (const auto& dense = topology.dense()) {
    h.kind = kDense;
    h.num_nodes = dense->frames;
    h.num_arcs = dense->labels;
  } else {
    h.kind = topology.is_acceptor() ? kAcceptor : kTransducer;
    if (topology.has_node_weights())
      h.kind = topology.is_acceptor() ? kAcceptorWithNodeWeights : kTransducerWithNodeWeights;
    h.num_nodes = topology.num_nodes();
    h.num_arcs = topology.num_arcs();
    h.num_start = static_cast<int32_t>(topology.start().size());
    h.num_accept = static_cast<int32_t>(topology.accept().size());
  }
  const auto& [input, output] = topology.symbols();
  const std::string isymbols = input ? to_bytes(*input) : std::string();
  const std::string osymbols = output && output != input ? to_bytes(*output) : std::string();
  h.isymbols = isymbols.size();
  h.osymbols = output && output == input ? kSame : osymbols.size();
  std::string out;
  out.reserve(size_of(h));
  put(out, &h, 1);
  if (h.kind != kDense) {
    for (const auto ids :
         {topology.start(), topology.accept(), topology.src(), topology.dst(), topology.ilabel()})
      put(out, ids);
    if (is_transducer(h)) put(out, topology.olabel());
  }
  dispatch(weights.dtype(), [&](auto zero) {
    const auto values = weights.view<decltype(zero)>();
    put(out, values.data(), values.size());
  });
  out.append(isymbols).append(osymbols);
  const Checksum sum = checksum(out);
  put(out, &sum, 1);
  return out;
}

}  // namespace arcgrad
