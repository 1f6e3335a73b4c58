#include <algorithm>
#include <span>

#include "arcgrad/io/file.h"
#include "arcgrad/io/foreign.h"
#include "arcgrad/io/formats.h"
#include "arcgrad/io/line_reader.h"
#include "arcgrad/runtime/error.h"
#include "arcgrad/runtime/interrupt_poll.h"

// The text format of gtn: start nodes, accept nodes, and one arc per line. Isolated nodes after the
// last mentioned one and float64 weights do not fit into that format; a comment in the first line
// records them: `# arcgrad: nodes=7 dtype=float64`.

namespace arcgrad {
namespace {

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

class GtnTextParser {
 public:
  GtnTextParser(std::string_view content, const char* op, std::string name)
      : lines_(content, op, std::move(name)), size_(content.size()) {}

  Graph parse() {
    arrays_.start = next_ids("start");
    arrays_.accept = next_ids("accept");
    Weights weights = dispatch(dtype_, [&](auto zero) { return parse_arcs<decltype(zero)>(); });
    if (!is_transducer_) arrays_.olabel.clear();
    require(named_nodes_ <= noted_nodes_ || noted_nodes_ < 0, lines_.op(), "nodes= in the note of ",
            lines_.name(), " must count all nodes, but it is ", noted_nodes_,
            " and there is a node ", named_nodes_ - 1);
    arrays_.num_nodes = std::max(named_nodes_, noted_nodes_);
    require_plausible(lines_.op(), lines_.name(), arrays_.num_nodes, size_);
    return Graph::from_arrays(std::move(arrays_), std::move(weights));
  }

 private:
  /// Steps to the next line that is not a comment. False at the end.
  bool next_line() {
    while (lines_.next()) {
      const auto& columns = lines_.columns();
      if (columns.empty() || columns[0][0] != '#') return true;
      const bool is_note = columns.size() > 1 && columns[0] == "#" && columns[1] == "arcgrad:";
      if (is_note && num_lines_ == 0) parse_note();
    }
    return false;
  }

  void parse_note() {
    for (const auto entry : std::span(lines_.columns()).subspan(2)) {
      if (entry.substr(0, 6) == "nodes=")
        noted_nodes_ = lines_.parse_int("the number of nodes", entry.substr(6), 0);
      else if (entry == "dtype=float64")
        dtype_ = DType::float64;
      else if (entry != "dtype=float32")
        lines_.fail_here("the note",
                         "must have nodes= and dtype= (float32 or float64) only, but it has ",
                         quote(entry));
    }
  }

  Column next_ids(const char* what) {
    require(next_line(), lines_.op(), lines_.name(),
            " must begin with a line of start nodes and a line of accept nodes, but it has ",
            num_lines_ == 0 ? "no line" : "one line");
    ++num_lines_;
    Column ids;
    ids.reserve(lines_.columns().size());
    for (const auto column : lines_.columns())
      ids.push_back(parse_node(text("the ", what, " node"), column));
    std::sort(ids.begin(), ids.end());
    const auto twice = std::adjacent_find(ids.begin(), ids.end());
    if (twice != ids.end())
      lines_.fail_here(text("the ", what, " nodes"), "must differ, but node ", *twice,
                       " is repeated");
    return ids;
  }

  template <class T>
  Weights parse_arcs() {
    Buffer<T> values;
    while (next_line()) {
      const auto& columns = lines_.columns();
      const size_t count = columns.size();
      if (count == 0) continue;
      if (count < 3 || count > 5)
        lines_.fail_here("an arc",
                         "must have 3 to 5 columns (src dst ilabel olabel weight), but it has ",
                         count, ": ", quote(lines_.line()));
      arrays_.src.push_back(parse_node("the source node", columns[0]));
      arrays_.dst.push_back(parse_node("the destination node", columns[1]));
      const int32_t ilabel = lines_.parse_int("the input label", columns[2], kLeastLabel);
      const int32_t olabel =
          count < 4 ? ilabel
                    : lines_.parse_int("the output label (column 4)", columns[3], kLeastLabel);
      is_transducer_ |= ilabel != olabel;
      arrays_.ilabel.push_back(ilabel);
      arrays_.olabel.push_back(olabel);
      values.push_back(count < 5 ? T{0} : lines_.parse_weight<T>(columns[4], true));
    }
    return to_weights<T>(values);
  }

  int32_t parse_node(std::string_view what, std::string_view column) {
    const int32_t node = lines_.parse_int(what, column, 0, LineReader::kMaxId);
    named_nodes_ = std::max(named_nodes_, node + 1);
    return node;
  }

  LineReader lines_;
  size_t size_;
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

Graph parse_gtn_text(std::string_view content, const char* op, const std::string& name) {
  return GtnTextParser(content, op, name).parse();
}

Graph from_text(std::string_view content, const char* op) {
  return parse_gtn_text(content, op, "the text");
}

void savetxt(const std::string& file_name, const Graph& graph) {
  write_file("savetxt", file_name, to_text(graph));
}

}  // namespace arcgrad
