#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <stdexcept>

#include "arcgrad/io/file.h"
#include "arcgrad/io/foreign.h"
#include "arcgrad/io/formats.h"
#include "arcgrad/runtime/interrupt_poll.h"

// Binary files of OpenFst: a header, symbol tables if the flags say so, and the states. In a vector
// FST each state is followed by its arcs; a const FST has an array of states and one of arcs, which
// begin at multiples of 16 bytes if the file is aligned. Lattices of Kaldi are vector FSTs whose
// weights are pairs of costs; those of compact lattices have a string of labels in addition.

namespace arcgrad {
namespace {

static_assert(std::endian::native == std::endian::little, "files are in little-endian order");

constexpr int32_t kFstMagic = 2125659606, kSymbolsMagic = 2125658996;
constexpr int32_t kHasInputSymbols = 1, kHasOutputSymbols = 2, kIsAligned = 4;
constexpr int32_t kVectorVersion = 2, kAlignedConstVersion = 1;
constexpr uint64_t kIsExpanded = 1, kIsMutable = 2;
constexpr int64_t kMaxIds = std::numeric_limits<int32_t>::max();

struct FstHeader {
  std::string_view fst_type, arc_type;
  int32_t version = 0, flags = 0;
  int64_t start = 0, num_states = 0, num_arcs = 0;
};

FstHeader read_header(ByteReader& reader) {
  FstHeader h;
  if (reader.get<int32_t>() != kFstMagic)
    reader.fail_here("must hold an FST of OpenFst at byte ", reader.position() - sizeof(int32_t),
                     ", but its magic number is missing");
  h.fst_type = reader.get_string();
  h.arc_type = reader.get_string();
  h.version = reader.get<int32_t>();
  h.flags = reader.get<int32_t>();
  reader.get<uint64_t>();  // properties, which follow from the content
  h.start = reader.get<int64_t>();
  h.num_states = reader.get<int64_t>();
  h.num_arcs = reader.get<int64_t>();
  if (h.start < -1 || h.num_states < -1 || h.num_states > kMaxIds)
    reader.fail_here("must be intact, but its header has ", h.num_states, " states and start ",
                     h.start);
  return h;
}

/// A symbol table: a magic number, a name, the next number that is free, and pairs of symbols and
/// numbers. Null if it is empty.
SymbolTablePtr read_symbols(ByteReader& reader, const LabelRule& rule) {
  if (reader.get<int32_t>() != kSymbolsMagic)
    reader.fail_here("must have a symbol table where its header says so, but there is none");
  reader.get_string();
  reader.get<int64_t>();
  const auto count = reader.get<int64_t>();
  std::vector<std::pair<std::string, int32_t>> entries;
  std::string epsilon = "<eps>";
  InterruptPoll poll;
  for (int64_t i = 0; i < count; ++i) {
    poll();
    std::string symbol(reader.get_string());
    const auto number = reader.get<int64_t>();
    if (number < 0 || number > kMaxIds || !rule.is_known(static_cast<int32_t>(number)))
      reader.fail_here("has labels that ", rule.wanted(), ", but the symbol ", quote(symbol),
                       " has ", number);
    if (number == 0)
      epsilon = std::move(symbol);
    else
      entries.emplace_back(std::move(symbol), rule.read(static_cast<int32_t>(number)));
  }
  if (entries.empty()) return nullptr;
  try {
    auto table = std::make_shared<SymbolTable>(SymbolTable::Kind::list, epsilon);
    for (auto& [symbol, label] : entries) table->add("symbols", std::move(symbol), label);
    return table;
  } catch (const std::invalid_argument& error) {
    reader.fail_here("must have a symbol table, but ", error.what());
  }
}

template <class T>
T read_at(const char* at) {
  T value;
  std::memcpy(&value, at, sizeof(T));
  return value;
}

/// The cost of one arc or state, as a score.
template <class T>
struct PlainCost {
  using Value = T;
  static constexpr size_t kSize = sizeof(T);
  T operator()(const char* at) const { return negated(read_at<T>(at)); }
};

struct LatticeCost {
  using Value = double;
  static constexpr size_t kSize = 2 * sizeof(float);
  const LoadOptions& options;
  double operator()(const char* at) const {
    return lattice_score(read_at<float>(at), read_at<float>(at + sizeof(float)), options);
  }
};

/// Fills columns from records `ilabel olabel weight nextstate`.
template <class Cost>
class ArcColumns {
 public:
  using Value = typename Cost::Value;
  static constexpr size_t kPacked = 3 * sizeof(int32_t) + Cost::kSize;

  ArcColumns(const ByteReader& reader, LabelRule rule, Cost cost, int64_t num_arcs)
      : reader_(reader), rule_(rule), cost_(cost) {
    if (num_arcs > kMaxIds)
      reader.fail_here("must have at most ", kMaxIds, " arcs, but it has ", num_arcs);
    const auto count = static_cast<size_t>(num_arcs);
    for (Column* column : {&src_, &dst_, &ilabel_, &olabel_}) column->resize(count);
    weights_ = Weights::uninitialized(num_arcs, DTypeOf());
    values_ = weights_.fill<Value>().data();
  }

  /// Adds `count` records that are `stride` bytes apart.
  void add(int32_t state, const char* at, size_t count, size_t stride) {
    bool is_known = true;
    for (size_t i = 0; i < count; ++i, at += stride) {
      const size_t a = size_ + i;
      const auto ilabel = read_at<int32_t>(at), olabel = read_at<int32_t>(at + sizeof(int32_t));
      is_known &= rule_.is_known(ilabel) && rule_.is_known(olabel);
      src_[a] = state;
      ilabel_[a] = rule_.read(ilabel);
      olabel_[a] = rule_.read(olabel);
      values_[a] = cost_(at + 2 * sizeof(int32_t));
      dst_[a] = read_at<int32_t>(at + 2 * sizeof(int32_t) + Cost::kSize);
    }
    if (!is_known) fail_label(state, at - count * stride, count, stride);
    size_ += count;
    poll_(static_cast<int64_t>(count) + 1);
  }

  /// Marks a state as accepting unless this is the cost of an impossible end.
  void add_end(int32_t state, const char* at) {
    const double score = cost_(at);
    if (score == -INFINITY) return;
    if (std::isnan(score))
      reader_.fail_here("must have weights that are numbers, inf or -inf, but that of state ",
                        state, " is nan");
    accept_.push_back(state);
    accept_weights_.push_back(score);
  }

  ForeignGraph release(int64_t start, int64_t num_states) && {
    ForeignGraph out;
    out.arrays.num_nodes = static_cast<int32_t>(num_states);
    if (start >= num_states)
      reader_.fail_here("must start in one of its ", num_states, " states, but it starts in ",
                        start);
    if (start >= 0) out.arrays.start = {static_cast<int32_t>(start)};
    out.arrays.accept = std::move(accept_);
    out.arrays.src = std::move(src_);
    out.arrays.dst = std::move(dst_);
    out.arrays.ilabel = std::move(ilabel_);
    out.arrays.olabel = std::move(olabel_);
    out.weights = std::move(weights_);
    out.accept_weights = std::move(accept_weights_);
    return out;
  }

 private:
  static DType DTypeOf() {
    return sizeof(Value) == sizeof(float) ? DType::float32 : DType::float64;
  }
  [[noreturn]] void fail_label(int32_t state, const char* at, size_t count, size_t stride) const {
    int32_t bad = 0;
    for (size_t i = 0; i < 2 * count; ++i) {
      const auto label = read_at<int32_t>(at + i / 2 * stride + i % 2 * sizeof(int32_t));
      if (!rule_.is_known(label)) bad = label;
    }
    reader_.fail_here("has labels that ", rule_.wanted(), ", but an arc of state ", state, " has ",
                      bad);
  }

  const ByteReader& reader_;
  LabelRule rule_;
  Cost cost_;
  Column src_, dst_, ilabel_, olabel_, accept_;
  Weights weights_;
  Value* values_;
  std::vector<double> accept_weights_;
  size_t size_ = 0;
  InterruptPoll poll_;
};

/// Without a number of states, an FST that was written to a pipe ends at the end of the file.
bool has_state(const ByteReader& reader, const FstHeader& h, int64_t state) {
  return h.num_states < 0 ? reader.num_left() > 0 : state < h.num_states;
}

template <class Cost>
ForeignGraph read_vector(ByteReader& reader, const FstHeader& h, LabelRule rule, Cost cost) {
  constexpr size_t kRecord = ArcColumns<Cost>::kPacked;
  const uint64_t begin = reader.position();
  int64_t num_states = 0, num_arcs = 0;
  InterruptPoll poll;
  for (; has_state(reader, h, num_states); ++num_states) {
    poll();
    reader.take(Cost::kSize);
    const auto count = reader.get<uint64_t>();
    reader.take(count, kRecord);
    num_arcs += static_cast<int64_t>(count);
  }
  if (num_states > kMaxIds)
    reader.fail_here("must have at most ", kMaxIds, " states, but it has ", num_states);
  ArcColumns<Cost> columns(reader, rule, cost, num_arcs);
  reader.seek(begin);
  for (int32_t state = 0; state < num_states; ++state) {
    columns.add_end(state, reader.take(Cost::kSize).data());
    const auto count = reader.get<uint64_t>();
    columns.add(state, reader.take(count, kRecord).data(), count, kRecord);
  }
  return std::move(columns).release(h.start, num_states);
}

template <class Cost>
ForeignGraph read_const(ByteReader& reader, const FstHeader& h, LabelRule rule, Cost cost) {
  // Arrays of C++ objects: those of 64-bit weights are padded to a multiple of 8.
  constexpr size_t kAlign = 16, kState = Cost::kSize + 4 * sizeof(int32_t);
  constexpr size_t kRecord =
      (ArcColumns<Cost>::kPacked + Cost::kSize - 1) / Cost::kSize * Cost::kSize;
  const bool is_aligned = (h.flags & kIsAligned) != 0 || h.version == kAlignedConstVersion;
  if (h.num_states < 0 || h.num_arcs < 0)
    reader.fail_here("must have the numbers of its states and arcs, but its header has ",
                     h.num_states, " and ", h.num_arcs);
  if (is_aligned) reader.align(kAlign);
  const char* const states = reader.take(static_cast<uint64_t>(h.num_states), kState).data();
  if (is_aligned) reader.align(kAlign);
  const char* const arcs = reader.take(static_cast<uint64_t>(h.num_arcs), kRecord).data();
  ArcColumns<Cost> columns(reader, rule, cost, h.num_arcs);
  uint64_t next = 0;
  for (int32_t state = 0; state < h.num_states; ++state) {
    const char* const at = states + static_cast<size_t>(state) * kState;
    const auto first = read_at<uint32_t>(at + Cost::kSize);
    const auto count = read_at<uint32_t>(at + Cost::kSize + sizeof(uint32_t));
    if (count > 0 && (first != next || count > static_cast<uint64_t>(h.num_arcs) - next))
      reader.fail_here("must have the arcs of state ", state, " at ", next, " of ", h.num_arcs,
                       ", but it has ", count, " arcs at ", first);
    columns.add_end(state, at);
    columns.add(state, arcs + next * kRecord, count, kRecord);
    next += count;
  }
  if (next != static_cast<uint64_t>(h.num_arcs))
    reader.fail_here("must have ", h.num_arcs, " arcs by its header, but its states have ", next);
  return std::move(columns).release(h.start, h.num_states);
}

ForeignGraph read_compact_lattice(ByteReader& reader, const FstHeader& h, LabelRule rule,
                                  LatticeCost cost) {
  CompactLattice lattice;
  InterruptPoll poll;
  const auto label_of = [&](int32_t label) {
    if (!rule.is_known(label))
      reader.fail_here("has labels that ", rule.wanted(), ", but one is ", label);
    return rule.read(label);
  };
  const auto take_labels = [&] { return reader.take(reader.get<uint32_t>(), sizeof(int32_t)); };
  const auto add_labels = [&](std::string_view labels) {
    for (; !labels.empty(); labels.remove_prefix(sizeof(int32_t)))
      lattice.add_label(label_of(read_at<int32_t>(labels.data())));
  };
  int32_t state = 0;
  for (; has_state(reader, h, state); ++state) {
    poll();
    lattice.add_end(state, cost(reader.take(LatticeCost::kSize).data()));
    add_labels(take_labels());
    for (auto left = reader.get<uint64_t>(); left > 0; --left) {
      poll();
      const int32_t word = label_of(reader.get<int32_t>());
      reader.get<int32_t>();  // the output label, which equals the input label
      const double weight = cost(reader.take(LatticeCost::kSize).data());
      const auto labels = take_labels();
      lattice.add_arc(state, reader.get<int32_t>(), word, weight);
      add_labels(labels);
    }
  }
  ForeignGraph out = std::move(lattice).expand(state, reader.op(), reader.name());
  if (h.start >= state)
    reader.fail_here("must start in one of its states, but it starts in ", h.start);
  if (h.start >= 0) out.arrays.start = {static_cast<int32_t>(h.start)};
  return out;
}

void put_string(std::string& out, std::string_view value) {
  put(out, static_cast<int32_t>(value.size()));
  out += value;
}

/// Writes the symbols of one side. Of all bytes or characters, those of labels in the graph.
void put_symbols(std::string& out, const SymbolTable& table, std::span<const int32_t> labels,
                 const LabelRule& rule) {
  std::vector<int32_t> listed = table.labels();
  if (table.kind() != SymbolTable::Kind::list) {
    listed.assign(labels.begin(), labels.end());
    std::ranges::sort(listed);
    listed.erase(std::unique(listed.begin(), listed.end()), listed.end());
    std::erase_if(listed, [&](int32_t label) { return label < 0 || !table.symbol(label); });
  }
  int64_t next = 1;
  for (const int32_t label : listed) next = std::max(next, int64_t{rule.write(label)} + 1);
  put(out, kSymbolsMagic);
  put_string(out, "symbols");
  put(out, next);
  put(out, static_cast<int64_t>(listed.size()) + 1);
  put_string(out, table.epsilon());
  put(out, int64_t{0});
  for (const int32_t label : listed) {
    put_string(out, *table.symbol(label));
    put(out, int64_t{rule.write(label)});
  }
}

/// Writes the states with costs of type Cost, from weights of type T.
template <class Cost, class T>
void put_states(std::string& out, const StateList& states, const LabelRule& rule) {
  InterruptPoll poll;
  for (int32_t state = 0; state < states.num_states(); ++state) {
    const int32_t count = states.num_arcs(state);
    poll(int64_t{count} + 1);
    put(out, negated(static_cast<Cost>(states.accept_weight(state))));
    put(out, int64_t{count});
    states.for_each_arc<T>(state, [&](int32_t ilabel, int32_t olabel, T weight, int32_t dst) {
      char record[3 * sizeof(int32_t) + sizeof(Cost)];
      const int32_t labels[2] = {rule.write(ilabel), rule.write(olabel)};
      const Cost cost = negated(static_cast<Cost>(weight));
      std::memcpy(record, labels, sizeof(labels));
      std::memcpy(record + sizeof(labels), &cost, sizeof(cost));
      std::memcpy(record + sizeof(labels) + sizeof(cost), &dst, sizeof(dst));
      out.append(record, sizeof(record));
    });
  }
}

}  // namespace

bool is_openfst(std::string_view bytes) { return first_number(bytes) == kFstMagic; }
bool is_openfst_symbols(std::string_view bytes) { return first_number(bytes) == kSymbolsMagic; }

Graph parse_openfst(ByteReader& reader, const LoadOptions& options) {
  const LabelRule rule(reader.op(), options.label_offset);
  const FstHeader h = read_header(reader);
  SymbolTables symbols;
  if ((h.flags & kHasInputSymbols) != 0) symbols.input = read_symbols(reader, rule);
  if ((h.flags & kHasOutputSymbols) != 0) symbols.output = read_symbols(reader, rule);
  // Equal tables become one, so that an acceptor has one table.
  if (symbols.input && symbols.output && *symbols.input == *symbols.output)
    symbols.output = symbols.input;
  const auto read = [&](auto cost) {
    if (h.fst_type == "vector") return read_vector(reader, h, rule, cost);
    if (h.fst_type == "const") return read_const(reader, h, rule, cost);
    reader.fail_here("must have the FST type vector or const, but it has ", quote(h.fst_type),
                     "; convert it with fstconvert --fst_type=vector");
  };
  const LatticeCost lattice{options};
  ForeignGraph content;
  if (h.arc_type == "standard" || h.arc_type == "log")
    content = read(PlainCost<float>());
  else if (h.arc_type == "log64")
    content = read(PlainCost<double>());
  else if (h.arc_type == "lattice4" && h.fst_type == "vector")
    content = read_vector(reader, h, rule, lattice);
  else if (h.arc_type == "compactlattice44" && h.fst_type == "vector")
    content = read_compact_lattice(reader, h, rule, lattice);
  else
    reader.fail_here("must have standard, log or log64 arcs, or be a lattice of Kaldi, but it has ",
                     quote(h.arc_type), " arcs in a ", quote(h.fst_type), " FST");
  content.arrays.symbols = std::move(symbols);
  require_numbers(reader.op(), reader.name(), content.weights);
  return to_graph(std::move(content), options, reader.op(), reader.name());
}

void write_openfst(std::string& out, const char* op, const Graph& graph,
                   const SaveOptions& options) {
  const LabelRule rule(op, options.label_offset);
  const StateList states(op, graph);
  const bool is_float64 = states.dtype() == DType::float64;
  const std::string& arc_type =
      options.arc_type.empty() ? (is_float64 ? "log64" : "standard") : options.arc_type;
  require(arc_type == "standard" || arc_type == "log" || arc_type == "log64", op,
          "arc_type must be standard, log or log64, but it is ", quote(arc_type));
  const bool is_double = arc_type == "log64";
  const size_t cost = is_double ? sizeof(double) : sizeof(float);
  out.reserve(out.size() + 128 + static_cast<size_t>(states.num_states()) * (8 + cost) +
              static_cast<size_t>(states.num_arcs()) * (12 + cost));
  put(out, kFstMagic);
  put_string(out, "vector");
  put_string(out, arc_type);
  put(out, kVectorVersion);
  const auto& [input, output] = graph.topology().symbols();
  put(out, (input ? kHasInputSymbols : 0) | (output ? kHasOutputSymbols : 0));
  put(out, kIsExpanded | kIsMutable);
  put(out, int64_t{states.start()});
  put(out, int64_t{states.num_states()});
  put(out, states.num_arcs());
  if (input) put_symbols(out, *input, graph.topology().ilabel(), rule);
  if (output) put_symbols(out, *output, graph.topology().olabel(), rule);
  dispatch(states.dtype(), [&](auto zero) {
    using T = decltype(zero);
    is_double ? put_states<double, T>(out, states, rule) : put_states<float, T>(out, states, rule);
  });
}

}  // namespace arcgrad
