#include <algorithm>
#include <cmath>
#include <map>

#include "arcgrad/io/foreign.h"
#include "arcgrad/io/formats.h"
#include "arcgrad/io/line_reader.h"

// The text format of OpenFst, from AT&T: a line per arc, `src dst ilabel olabel [cost]`, or in an
// acceptor `src dst label [cost]`, and a line per accept node, `node [cost]`. The start node is the
// first node of the first line. Lattices of Kaldi have costs `graph,acoustic`, those of compact
// lattices are followed by the labels, `graph,acoustic,1_1_2`.

namespace arcgrad {
namespace {

/// Thrown when a line shows that the text is an acceptor, or a compact lattice.
struct IsAcceptor {};
struct IsCompactLattice {};

/// A column of a lattice: two costs, and in compact lattices labels.
struct LatticeWeight {
  double score = 0;
  /// `1_1_2`, or empty.
  std::string_view labels;
  bool is_compact = false;
};

LatticeWeight parse_lattice_weight(const LineReader& lines, std::string_view column,
                                   const LoadOptions& options) {
  const size_t first = std::min(column.find(','), column.size());
  const std::string_view rest = column.substr(std::min(first + 1, column.size()));
  const size_t second = rest.find(',');
  LatticeWeight out;
  const auto graph = lines.parse_weight<double>(column.substr(0, first), false);
  const auto acoustic = lines.parse_weight<double>(rest.substr(0, second), false);
  out.score = lattice_score(graph, acoustic, options);
  out.is_compact = second != std::string_view::npos;
  if (out.is_compact) out.labels = rest.substr(second + 1);
  return out;
}

class AttParser {
 public:
  AttParser(std::string_view content, const char* op, const std::string& name,
            const LoadOptions& options, bool is_acceptor)
      : lines_(content, op, name),
        options_(options),
        rule_(op, options.label_offset),
        is_acceptor_(is_acceptor),
        may_switch_(!options.is_acceptor && !is_acceptor) {}

  template <class T>
  ForeignGraph parse() {
    Buffer<T> values;
    while (lines_.next()) {
      const auto& columns = lines_.columns();
      const size_t count = columns.size();
      if (count == 0) continue;
      const int32_t src = parse_node(columns[0]);
      if (arrays_.start.empty()) arrays_.start = {src};
      if (count <= 2) {
        add_end(src, count == 2 ? parse_score<T>(columns[1]) : 0.0);
        continue;
      }
      check_columns<T>();
      const size_t cost = is_acceptor_ ? 3 : 4;
      arrays_.src.push_back(src);
      arrays_.dst.push_back(parse_node(columns[1]));
      arrays_.ilabel.push_back(parse_label(Side::input, columns[2]));
      arrays_.olabel.push_back(is_acceptor_ ? arrays_.ilabel.back()
                                            : parse_label(Side::output, columns[3]));
      values.push_back(count > cost ? parse_score<T>(columns[cost]) : T{0});
    }
    require(!arrays_.start.empty(), lines_.op(), lines_.name(),
            " must have a line for the start node, but it is empty");
    ForeignGraph out;
    for (const auto& [node, score] : ends_) {
      if (score == -INFINITY) continue;
      arrays_.accept.push_back(node);
      out.accept_weights.push_back(score);
    }
    arrays_.num_nodes = num_nodes_;
    arrays_.symbols = options_.symbols;
    out.arrays = std::move(arrays_);
    out.weights = to_weights<T>(values);
    return out;
  }

 private:
  /// Throws unless the line fits the other lines: all are arcs of an acceptor, or of a transducer.
  template <class T>
  void check_columns() {
    const auto& columns = lines_.columns();
    const size_t count = columns.size();
    if (is_acceptor_ ? count <= 4 : count == 5) {
      may_switch_ &= is_acceptor_;
      return;
    }
    int32_t label = 0;
    const bool fits_both =
        count == 4 &&
        (options_.symbols.output ? options_.symbols.output->find(columns[3]).has_value()
                                 : LineReader::is_int(columns[3], label));
    if (!is_acceptor_ && fits_both) return;
    if (!is_acceptor_ && count <= 4 && may_switch_) throw IsAcceptor();
    lines_.fail_here("an arc", "must have ",
                     is_acceptor_ ? "3 or 4 columns (src dst label cost)"
                                  : "4 or 5 columns (src dst ilabel olabel cost)",
                     " like the other lines of ", is_acceptor_ ? "an acceptor" : "a transducer",
                     ", but it is ", quote(lines_.line()));
  }

  int32_t parse_node(std::string_view column) {
    const int32_t node = lines_.parse_int("the node", column, 0, LineReader::kMaxId);
    num_nodes_ = std::max(num_nodes_, node + 1);
    return node;
  }

  int32_t parse_label(Side side, std::string_view column) const {
    const char* const what = side == Side::input ? "the input label" : "the output label";
    if (const SymbolTablePtr& table = options_.symbols.of(side)) {
      const std::optional<int32_t> found = table->find(column);
      if (!found)
        lines_.fail_here(what, "must be a symbol of the table, but it is ", quote(column));
      return *found;
    }
    const int32_t label = lines_.parse_int(what, column, 0);
    if (!rule_.is_known(label)) lines_.fail_here(what, rule_.wanted(), ", but it is ", label);
    return rule_.read(label);
  }

  /// The score of a cost, or of the two costs of a lattice.
  template <class T>
  T parse_score(std::string_view column) const {
    if (column.find(',') == std::string_view::npos)
      return negated(lines_.parse_weight<T>(column, false));
    const LatticeWeight weight = parse_lattice_weight(lines_, column, options_);
    if (weight.is_compact) throw IsCompactLattice();
    return static_cast<T>(weight.score);
  }

  void add_end(int32_t node, double score) {
    if (!ends_.emplace(node, score).second)
      lines_.fail_here("an accept node", "must be on one line only, but node ", node,
                       " was on an earlier line");
  }

  LineReader lines_;
  const LoadOptions& options_;
  LabelRule rule_;
  bool is_acceptor_, may_switch_;
  int32_t num_nodes_ = 0;
  Arrays arrays_;
  std::map<int32_t, double> ends_;
};

/// A compact lattice: `src dst word [graph,acoustic,labels]` and `state [graph,acoustic,labels]`.
ForeignGraph parse_compact_lattice(std::string_view content, const char* op,
                                   const std::string& name, const LoadOptions& options) {
  LineReader lines(content, op, name);
  const LabelRule rule(op, options.label_offset);
  CompactLattice lattice;
  int32_t num_states = 0, start = -1;
  const auto parse_state = [&](std::string_view column) {
    const int32_t state = lines.parse_int("the node", column, 0, LineReader::kMaxId);
    num_states = std::max(num_states, state + 1);
    return state;
  };
  const auto parse_label = [&](std::string_view column) {
    const int32_t label = lines.parse_int("the label", column, 0);
    if (!rule.is_known(label)) lines.fail_here("the label", rule.wanted(), ", but it is ", label);
    return rule.read(label);
  };
  while (lines.next()) {
    const auto& columns = lines.columns();
    const size_t count = columns.size();
    if (count == 0) continue;
    if (count > 4)
      lines.fail_here("an arc", "must have 3 or 4 columns in a compact lattice, but it has ",
                      count);
    const int32_t state = parse_state(columns[0]);
    if (start < 0) start = state;
    LatticeWeight weight;
    if (count % 2 == 0) weight = parse_lattice_weight(lines, columns[count - 1], options);
    if (count < 3)
      lattice.add_end(state, weight.score);
    else
      lattice.add_arc(state, parse_state(columns[1]), parse_label(columns[2]), weight.score);
    for (std::string_view rest = weight.labels; !rest.empty();) {
      const size_t size = std::min(rest.find('_'), rest.size());
      lattice.add_label(parse_label(rest.substr(0, size)));
      rest.remove_prefix(std::min(size + 1, rest.size()));
    }
  }
  require_plausible(op, name, num_states, content.size());
  ForeignGraph out = std::move(lattice).expand(num_states, op, name);
  out.arrays.start = {start};
  if (!options.dtype) out.weights = out.weights.cast(DType::float32);
  return out;
}

}  // namespace

Graph parse_att(std::string_view content, const char* op, const std::string& name,
                const LoadOptions& options) {
  const auto parse = [&](bool is_acceptor) {
    AttParser parser(content, op, name, options, is_acceptor);
    return dispatch(options.dtype.value_or(DType::float32),
                    [&](auto zero) { return parser.parse<decltype(zero)>(); });
  };
  ForeignGraph out;
  try {
    try {
      out = parse(options.is_acceptor.value_or(false));
    } catch (const IsAcceptor&) {
      out = parse(true);
    }
  } catch (const IsCompactLattice&) {
    out = parse_compact_lattice(content, op, name, options);
  }
  require_plausible(op, name, out.arrays.num_nodes, content.size());
  return to_graph(std::move(out), options, op, name);
}

std::string write_att(const char* op, const Graph& graph, const SaveOptions& options) {
  const PlainNumbers plain;
  const LabelRule rule(op, options.label_offset);
  const StateList states(op, graph);
  require(states.start() >= 0, op,
          "the graph must have a start node in this format, but it has none");
  std::string out;
  InterruptPoll poll;
  const SymbolTables& tables = graph.topology().symbols();
  require(!options.with_symbols || (tables.input && tables.output), op,
          "the graph must have symbols for its input and output labels, but it has none for its ",
          tables.input ? "output" : "input", " labels");
  const auto put_label = [&](int32_t label, Side side) {
    out += '\t';
    if (!options.with_symbols) return put_int(out, rule.write(label));
    const std::optional<std::string> symbol = tables.of(side)->symbol(label);
    require(symbol.has_value(), op, "the symbols must name every label, but label ", label,
            " has none");
    require(symbol->find_first_of(" \t\r\n\v\f") == std::string::npos, op,
            "symbols in this format must have no white space, but ", quote(*symbol), " has");
    out += *symbol;
  };
  dispatch(states.dtype(), [&](auto zero) {
    using T = decltype(zero);
    const auto put_cost = [&](T score) {
      if (score == 0) return;
      out += '\t';
      // OpenFst reads no other spelling.
      if (std::isinf(score))
        out += score < 0 ? "Infinity" : "-Infinity";
      else
        put_float(out, negated(score));
    };
    const auto put_state = [&](int32_t state) {
      constexpr int64_t kWork = 10;
      poll(kWork * (states.num_arcs(state) + 1));
      states.for_each_arc<T>(state, [&](int32_t ilabel, int32_t olabel, T weight, int32_t dst) {
        put_int(out, state);
        out += '\t';
        put_int(out, dst);
        put_label(ilabel, Side::input);
        put_label(olabel, Side::output);
        put_cost(weight);
        out += '\n';
      });
      const double end = states.accept_weight(state);
      // A node without arcs needs a line too, as it may be the start or the last node.
      if (end == -INFINITY && states.num_arcs(state) > 0) return;
      put_int(out, state);
      put_cost(static_cast<T>(end));
      out += '\n';
    };
    put_state(states.start());
    for (int32_t state = 0; state < states.num_states(); ++state)
      if (state != states.start()) put_state(state);
  });
  return out;
}

}  // namespace arcgrad
