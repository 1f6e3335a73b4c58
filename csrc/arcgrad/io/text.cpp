#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <span>
#include <type_traits>

#include "arcgrad/io/file.h"
#include "arcgrad/io/io.h"
#include "arcgrad/runtime/error.h"
#include "arcgrad/runtime/interrupt_poll.h"

// The text format of gtn: start nodes, accept nodes, and one arc per line. Isolated nodes after the
// last mentioned one and float64 weights do not fit into that format; a comment in the first line
// records them: `# arcgrad: nodes=7 dtype=float64`.

namespace arcgrad {
namespace {

constexpr int32_t kMaxId = std::numeric_limits<int32_t>::max();
constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";
constexpr std::string_view kSpace = " \t\r\v\f";

template <class T>
T parse_float(const char* digits, char** end) {
  if constexpr (std::is_same_v<T, float>)
    return std::strtof(digits, end);
  else
    return std::strtod(digits, end);
}

/// Appends the digits that read back as the same value: 6 or 15 if they suffice, else more.
template <class T>
void put_float(std::string& out, T value) {
  if (std::isnan(value)) {
    out += "nan";  // printf would print the meaningless sign of a NaN
    return;
  }
  using Limits = std::numeric_limits<T>;
  char digits[32];
  for (int precision = Limits::digits10; precision <= Limits::max_digits10; ++precision) {
    std::snprintf(digits, sizeof(digits), "%.*g", precision, static_cast<double>(value));
    if (parse_float<T>(digits, nullptr) == value) break;
  }
  out += digits;
}

void put_int(std::string& out, int32_t value) {
  char digits[12];
  out.append(digits, std::to_chars(digits, std::end(digits), value).ptr);
}

void put_ids(std::string& out, std::span<const int32_t> ids) {
  for (size_t i = 0; i < ids.size(); ++i) {
    if (i > 0) out += ' ';
    put_int(out, ids[i]);
  }
  out += '\n';
}

/// The number of nodes that the plain format implies.
int32_t count_named(const Topology& topology) {
  int32_t last = -1;
  for (const auto ids : {topology.start(), topology.accept(), topology.src(), topology.dst()})
    for (const int32_t id : ids) last = std::max(last, id);
  return last + 1;
}

class Parser {
 public:
  Parser(std::string_view content, const char* op, std::string name)
      : rest_(content), op_(op), name_(std::move(name)) {
    // Some editors write a byte order mark at the beginning of UTF-8 text.
    if (rest_.starts_with(kByteOrderMark)) rest_.remove_prefix(kByteOrderMark.size());
  }

  Graph parse() {
    const PlainNumbers plain;
    arrays_.start = next_ids("start");
    arrays_.accept = next_ids("accept");
    Weights weights = dispatch(dtype_, [&](auto zero) { return parse_arcs<decltype(zero)>(); });
    if (!is_transducer_) arrays_.olabel.clear();
    require(named_nodes_ <= noted_nodes_ || noted_nodes_ < 0, op_, "nodes= in the note of ", name_,
            " must count all nodes, but it is ", noted_nodes_, " and there is a node ",
            named_nodes_ - 1);
    arrays_.num_nodes = std::max(named_nodes_, noted_nodes_);
    return Graph::from_arrays(std::move(arrays_), std::move(weights));
  }

 private:
  template <class... Parts>
  [[noreturn]] void fail_here(std::string_view what, const Parts&... parts) const {
    fail(op_, what, " on line ", line_number_, " of ", name_, " ", parts...);
  }

  /// Steps to the next line that is not a comment and splits it. False at the end.
  bool next_line() {
    while (!rest_.empty()) {
      poll_();
      const size_t end = std::min(rest_.find('\n'), rest_.size());
      line_ = rest_.substr(0, end);
      rest_.remove_prefix(std::min(end + 1, rest_.size()));
      ++line_number_;
      split();
      if (columns_.empty() || columns_[0][0] != '#') return true;
      const bool is_note = columns_.size() > 1 && columns_[0] == "#" && columns_[1] == "arcgrad:";
      if (is_note && num_lines_ == 0) parse_note();
    }
    return false;
  }

  void split() {
    columns_.clear();
    size_t begin = 0;
    while ((begin = line_.find_first_not_of(kSpace, begin)) != std::string_view::npos) {
      const size_t end = std::min(line_.find_first_of(kSpace, begin), line_.size());
      columns_.push_back(line_.substr(begin, end - begin));
      begin = end;
    }
  }

  void parse_note() {
    for (const auto entry : std::span(columns_).subspan(2)) {
      if (entry.substr(0, 6) == "nodes=")
        noted_nodes_ = parse_int("the number of nodes", entry.substr(6), 0);
      else if (entry == "dtype=float64")
        dtype_ = DType::float64;
      else if (entry != "dtype=float32")
        fail_here("the note", "must have nodes= and dtype= (float32 or float64) only, but it has ",
                  quote(entry));
    }
  }

  Column next_ids(const char* what) {
    require(next_line(), op_, name_, " must begin with a line of start nodes and a line of accept ",
            "nodes, but it has ", num_lines_ == 0 ? "no line" : "one line");
    ++num_lines_;
    Column ids;
    ids.reserve(columns_.size());
    for (const auto column : columns_)
      ids.push_back(parse_node(text("the ", what, " node"), column));
    std::sort(ids.begin(), ids.end());
    const auto twice = std::adjacent_find(ids.begin(), ids.end());
    if (twice != ids.end())
      fail_here(text("the ", what, " nodes"), "must differ, but node ", *twice, " is repeated");
    return ids;
  }

  template <class T>
  Weights parse_arcs() {
    std::vector<T> values;
    while (next_line()) {
      const size_t count = columns_.size();
      if (count == 0) continue;
      if (count < 3 || count > 5)
        fail_here("an arc", "must have 3 to 5 columns (src dst ilabel olabel weight), but it has ",
                  count, ": ", quote(line_));
      arrays_.src.push_back(parse_node("the source node", columns_[0]));
      arrays_.dst.push_back(parse_node("the destination node", columns_[1]));
      const int32_t ilabel = parse_int("the input label", columns_[2], kEpsilon);
      const int32_t olabel =
          count < 4 ? ilabel : parse_int("the output label (column 4)", columns_[3], kEpsilon);
      is_transducer_ |= ilabel != olabel;
      arrays_.ilabel.push_back(ilabel);
      arrays_.olabel.push_back(olabel);
      values.push_back(count < 5 ? T{0} : parse_weight<T>(columns_[4]));
    }
    Weights weights = Weights::uninitialized(static_cast<int64_t>(values.size()), dtype_);
    std::copy(values.begin(), values.end(), weights.fill<T>().begin());
    return weights;
  }

  int32_t parse_int(std::string_view what, std::string_view column, int32_t low,
                    int32_t high = kMaxId) const {
    int32_t value = 0;
    const auto [end, error] = std::from_chars(column.data(), column.data() + column.size(), value);
    if (error != std::errc() || end != column.data() + column.size() || value < low || value > high)
      fail_here(what, "must be a whole number from ", low, " to ", high, ", but it is ",
                quote(column));
    return value;
  }

  int32_t parse_node(std::string_view what, std::string_view column) {
    // The number of nodes, id + 1, must fit as well.
    const int32_t node = parse_int(what, column, 0, kMaxId - 1);
    named_nodes_ = std::max(named_nodes_, node + 1);
    return node;
  }

  template <class T>
  T parse_weight(std::string_view column) {
    scratch_ = column;
    char* end = nullptr;
    errno = 0;
    const T value = parse_float<T>(scratch_.c_str(), &end);
    if (end != scratch_.c_str() + scratch_.size())
      fail_here("the weight", "must be a number, inf, -inf or nan, but it is ", quote(column));
    if (errno == ERANGE && std::isinf(value))
      fail_here("the weight", "must fit ", dtype_ == DType::float32 ? "float32" : "float64",
                ", but it is ", quote(column));
    return value;
  }

  std::string_view rest_, line_;
  InterruptPoll poll_;
  const char* op_;
  std::string name_, scratch_;
  std::vector<std::string_view> columns_;
  int64_t line_number_ = 0;
  int32_t num_lines_ = 0, named_nodes_ = 0, noted_nodes_ = -1;
  DType dtype_ = DType::float32;
  bool is_transducer_ = false;
  Arrays arrays_;
};

}  // namespace

std::string to_text(const Graph& graph) {
  const PlainNumbers plain;
  const Topology& topology = graph.topology();
  require(!topology.has_node_weights(), "savetxt",
          "the graph must have no node weights, which the text format does not have, but it has ",
          topology.num_weights() - topology.num_arcs(), "; save keeps them");
  const Weights weights = graph.weights();
  std::string out, note;
  if (count_named(topology) != topology.num_nodes()) note += text(" nodes=", topology.num_nodes());
  if (weights.dtype() == DType::float64) note += " dtype=float64";
  if (!note.empty()) out = "# arcgrad:" + note + "\n";
  put_ids(out, topology.start());
  put_ids(out, topology.accept());
  const std::span<const int32_t> columns[] = {topology.src(), topology.dst(), topology.ilabel(),
                                              topology.olabel()};
  dispatch(weights.dtype(), [&](auto zero) {
    const auto values = weights.view<decltype(zero)>();
    InterruptPoll poll;
    for (size_t a = 0; a < values.size(); ++a) {
      constexpr int64_t kWork = 10;
      poll(kWork);
      for (const auto column : columns) {
        put_int(out, column[a]);
        out += ' ';
      }
      put_float(out, values[a]);
      out += '\n';
    }
  });
  return out;
}

Graph from_text(std::string_view content, const char* op) {
  return Parser(content, op, "the text").parse();
}

void savetxt(const std::string& file_name, const Graph& graph) {
  write_file("savetxt", file_name, to_text(graph));
}

Graph loadtxt(const std::string& file_name) {
  const Buffer<char> content = read_file("loadtxt", file_name);
  return Parser({content.data(), content.size()}, "loadtxt", text("'", file_name, "'")).parse();
}

}  // namespace arcgrad
