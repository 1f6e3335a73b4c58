#include <algorithm>
#include <cmath>
#include <cstdio>

#include "arcgrad/io/file.h"
#include "arcgrad/io/io.h"
#include "arcgrad/runtime/error.h"
#include "arcgrad/runtime/interrupt_poll.h"

// The DOT language of Graphviz. Start nodes are bold, accept nodes have a double circle.

namespace arcgrad {
namespace {

/// Appends text to a label between double quotes.
void put_escaped(std::string& out, std::string_view label) {
  for (const char c : label) {
    if (c == '\n') {
      out += "\\n";
      continue;
    }
    if (c == '"' || c == '\\') out += '\\';
    out += c;
    if (c == '&') out += "amp;";  // Graphviz decodes HTML entities such as &lt;
  }
}

void put_label(std::string& out, int32_t label, const Symbols* symbols, const SymbolTablePtr& own,
               const char* side) {
  if (symbols != nullptr) {
    const auto found = symbols->find(label);
    if (found != symbols->end()) return put_escaped(out, found->second);
    require(label < 0, "write_dot", "the ", side, " symbols must name every label, but label ",
            label, " is missing");
  }
  if (const auto symbol = own && label >= 0 ? own->symbol(label) : std::nullopt)
    return put_escaped(out, *symbol);
  out += label_text(label);
}

void put_weight(std::string& out, double weight, const char* before, const char* after) {
  char digits[32];
  // Adding 0 turns -0 into 0; the sign of a NaN is omitted.
  std::snprintf(digits, sizeof(digits), "%.4g", weight + 0.0);
  out += before;
  out += std::isnan(weight) ? "nan" : digits;
  out += after;
}

}  // namespace

std::string label_text(int32_t label) {
  return label == kEpsilon ? "ε"
         : label == kPhi   ? "φ"
         : label == kRho   ? "ρ"
                           : std::to_string(label);
}

std::string to_dot(const Graph& graph, const Symbols* isymbols, const Symbols* osymbols,
                   const DotStyle& style) {
  const PlainNumbers plain;
  const Topology& topology = graph.topology();
  const std::vector<double> weights = graph.weights_to_vector();
  const std::vector<double> start_weights = graph.start_weights();
  const std::vector<double> accept_weights = graph.accept_weights();
  const auto is_weight = [](double w) { return w != 0; };
  const bool has_weights = std::ranges::any_of(weights, is_weight);
  const bool has_node_weights = std::ranges::any_of(start_weights, is_weight) ||
                                std::ranges::any_of(accept_weights, is_weight);
  // With different symbols for the two sides, even an acceptor is drawn as a transducer.
  const SymbolTables& own = topology.symbols();
  const bool same_symbols = osymbols == nullptr || osymbols == isymbols ||
                            (isymbols != nullptr && *osymbols == *isymbols);
  const bool same_own = isymbols != nullptr || own.input == own.output;
  const bool has_output = !topology.is_acceptor() || !same_symbols || !same_own;

  require(style.arcs.empty() || style.arcs.size() == weights.size(), "write_dot",
          "there must be a style per arc, but there are ", style.arcs.size(), " for ",
          weights.size(), " arcs");
  std::string out =
      "digraph {\n"
      "  rankdir=LR\n" +
      style.graph +
      "  node [shape=circle fontsize=14]\n"
      "  edge [fontsize=14]\n";
  InterruptPoll poll;
  size_t next_start = 0, next_accept = 0;
  for (int32_t n = 0; n < topology.num_nodes(); ++n) {
    poll();
    out += "  " + std::to_string(n);
    const bool start = topology.is_start(n), accept = topology.is_accept(n);
    std::string attributes;
    if (accept) attributes += " shape=doublecircle";
    if (start) attributes += " style=bold";
    if (has_node_weights) {
      // As OpenFst draws them: "2/0.5" is node 2 with the accept weight 0.5. A start weight comes
      // before the node. pygraphviz leaves nodes without a label empty if another node has one.
      const double before = start ? start_weights[next_start++] : 0;
      const double after = accept ? accept_weights[next_accept++] : 0;
      std::string label;
      if (before != 0) put_weight(label, before, "", "/");
      label += std::to_string(n);
      if (after != 0) put_weight(label, after, "/", "");
      attributes += " label=\"" + label + "\"";
    }
    if (!attributes.empty()) out += " [" + attributes.substr(1) + "]";
    out += '\n';
  }
  const auto src = topology.src(), dst = topology.dst();
  const auto ilabel = topology.ilabel(), olabel = topology.olabel();
  for (size_t a = 0; a < weights.size(); ++a) {
    poll();
    out += "  " + std::to_string(src[a]) + " -> " + std::to_string(dst[a]) + " [label=\"";
    put_label(out, ilabel[a], isymbols, own.input, "input");
    if (has_output) {
      out += ':';
      put_label(out, olabel[a], osymbols, own.output, "output");
    }
    if (has_weights) put_weight(out, weights[a], "/", "");
    out += '"';
    if (!style.arcs.empty()) (out += ' ') += style.arcs[a];
    out += "]\n";
  }
  return out + "}\n";
}

void write_dot(const Graph& graph, const std::string& file_name, const Symbols* isymbols,
               const Symbols* osymbols) {
  write_file("write_dot", file_name, to_dot(graph, isymbols, osymbols));
}

}  // namespace arcgrad
