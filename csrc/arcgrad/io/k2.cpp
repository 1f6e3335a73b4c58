#include <algorithm>
#include <bit>
#include <cmath>
#include <unordered_map>

#include "arcgrad/io/foreign.h"
#include "arcgrad/io/formats.h"
#include "arcgrad/io/line_reader.h"

// Graphs of k2: as text, a line per arc, `src dst label score`, or with output labels
// `src dst label aux_label score`, and at the end the number of the final state; as an array, a row
// of 32-bit numbers per arc, of which the last is the bits of the score. State 0 is the start. Arcs
// with label -1 enter the final state, and no others do: they are our accept weights.

namespace arcgrad {
namespace {

constexpr int32_t kFinalLabel = -1;

/// Converts arcs to the final state into accept weights. If a state has several of them, or one
/// with an output label, they stay arcs without an input label. `labels` has the labels of the
/// file.
Graph build(K2Arcs arcs, int32_t final_state, const char* op, const std::string& name,
            const LoadOptions& options) {
  const LabelRule rule(op, options.label_offset);
  const size_t count = arcs.src.size();
  const bool has_output = !arcs.olabel.empty();
  std::unordered_map<int32_t, int32_t> num_ends;  // a file of few bytes may have a large number
  for (size_t a = 0; a < count; ++a) {
    const bool ends = arcs.ilabel[a] == kFinalLabel;
    require(arcs.src[a] >= 0 && arcs.src[a] < final_state, op, name,
            " must have arcs that leave states before the final state ", final_state, ", but arc ",
            a, " leaves state ", arcs.src[a]);
    require(ends == (arcs.dst[a] == final_state), op, name,
            " must have the label -1 on arcs to the final state ", final_state,
            " and on no others, but arc ", a, " goes to state ", arcs.dst[a], " with label ",
            arcs.ilabel[a]);
    const bool is_known =
        rule.is_known(ends ? 0 : arcs.ilabel[a]) &&
        (!has_output || rule.is_known(arcs.olabel[a]) || (ends && arcs.olabel[a] == kFinalLabel));
    if (!is_known)
      fail(op, name, " has labels that ", rule.wanted(), ", but arc ", a, " has ", arcs.ilabel[a],
           has_output ? text(" and ", arcs.olabel[a]) : "");
    if (ends) ++num_ends[arcs.src[a]];
  }

  ForeignGraph out;
  std::vector<std::pair<int32_t, double>> accept;
  bool keeps_final = false;
  size_t kept = 0;
  for (size_t a = 0; a < count; ++a) {
    const bool ends = arcs.ilabel[a] == kFinalLabel;
    const int32_t olabel = !has_output || (ends && arcs.olabel[a] == kFinalLabel)
                               ? rule.read(ends ? 0 : arcs.ilabel[a])
                               : rule.read(arcs.olabel[a]);
    if (ends && olabel == kEpsilon && num_ends[arcs.src[a]] == 1) {
      if (arcs.scores[a] != -INFINITY) accept.emplace_back(arcs.src[a], arcs.scores[a]);
      continue;
    }
    keeps_final |= ends;
    arcs.src[kept] = arcs.src[a];
    arcs.dst[kept] = arcs.dst[a];
    arcs.ilabel[kept] = rule.read(ends ? 0 : arcs.ilabel[a]);
    if (has_output) arcs.olabel[kept] = olabel;
    arcs.scores[kept++] = arcs.scores[a];
  }
  if (keeps_final) accept.emplace_back(final_state, 0.0);
  std::sort(accept.begin(), accept.end());
  for (const auto& [node, score] : accept) {
    out.arrays.accept.push_back(node);
    out.accept_weights.push_back(score);
  }
  for (Column* column : {&arcs.src, &arcs.dst, &arcs.ilabel, &arcs.olabel})
    if (!column->empty()) column->resize(kept);
  out.arrays.num_nodes = final_state + (keeps_final ? 1 : 0);
  if (out.arrays.num_nodes > 0) out.arrays.start = {0};
  out.arrays.src = std::move(arcs.src);
  out.arrays.dst = std::move(arcs.dst);
  out.arrays.ilabel = std::move(arcs.ilabel);
  out.arrays.olabel = std::move(arcs.olabel);
  arcs.scores.resize(kept);
  out.weights = to_weights<float>(arcs.scores);
  require_numbers(op, name, out.weights);
  return to_graph(std::move(out), options, op, name);
}

/// Calls `visit(src, dst, label, aux_label, score)` for the arcs of each state, in k2's numbering:
/// the start is state 0, and the final state comes last. Returns the final state.
template <class Visit>
int32_t for_each_arc(const char* op, const Graph& graph, const SaveOptions& options,
                     const Visit& visit) {
  const LabelRule rule(op, options.label_offset);
  const StateList states(op, graph);
  require_float32(op, graph, "k2");
  require(states.start() >= 0, op, "the graph must have a start node for k2, but it has none");
  // The start moves to the front.
  const int32_t start = states.start(), final_state = states.num_states();
  const auto number = [&](int32_t node) {
    return node == start ? 0 : node < start ? node + 1 : node;
  };
  InterruptPoll poll;
  const auto put_state = [&](int32_t state) {
    poll(states.num_arcs(state) + 1);
    const auto put = [&](int32_t ilabel, int32_t olabel, double weight, int32_t dst) {
      visit(number(state), number(dst), rule.write(ilabel), rule.write(olabel),
            static_cast<float>(weight));
    };
    dispatch(states.dtype(), [&](auto zero) { states.for_each_arc<decltype(zero)>(state, put); });
    const double end = states.accept_weight(state);
    if (end != -INFINITY)
      visit(number(state), final_state, kFinalLabel, kFinalLabel, static_cast<float>(end));
  };
  put_state(start);
  for (int32_t state = 0; state < states.num_states(); ++state)
    if (state != start) put_state(state);
  return final_state;
}

}  // namespace

Graph parse_k2(std::string_view content, const char* op, const std::string& name,
               const LoadOptions& options) {
  LineReader lines(content, op, name);
  K2Arcs arcs;
  int32_t final_state = -1;
  size_t num_columns = 0;
  while (lines.next()) {
    const auto& columns = lines.columns();
    const size_t count = columns.size();
    if (count == 0) continue;
    if (final_state >= 0)
      lines.fail_here("the final state",
                      "must be on the last line, but here is another one: ", quote(lines.line()));
    if (count == 1) {
      final_state = lines.parse_int("the final state", columns[0], 0, LineReader::kMaxId);
      continue;
    }
    if (num_columns == 0) num_columns = count;
    if (count != num_columns || (count != 4 && count != 5))
      lines.fail_here("an arc",
                      "must have 4 columns (src dst label score), or all arcs 5 columns (src dst "
                      "label aux_label score), but it is ",
                      quote(lines.line()));
    arcs.src.push_back(lines.parse_int("the source state", columns[0], 0, LineReader::kMaxId));
    arcs.dst.push_back(lines.parse_int("the destination state", columns[1], 0, LineReader::kMaxId));
    arcs.ilabel.push_back(lines.parse_int("the label", columns[2], kFinalLabel));
    if (count == 5)
      arcs.olabel.push_back(lines.parse_int("the aux_label", columns[3], kFinalLabel));
    arcs.scores.push_back(lines.parse_weight<float>(columns.back(), false));
  }
  require(final_state >= 0, op, name, " must end with a line for the final state, but it has none");
  require_plausible(op, name, final_state, content.size());
  return build(std::move(arcs), final_state, op, name, options);
}

std::string write_k2(const char* op, const Graph& graph, const SaveOptions& options) {
  const PlainNumbers plain;
  const bool is_acceptor = graph.topology().is_acceptor();
  std::string out;
  const auto put_column = [&](int32_t value) {
    put_int(out, value);
    out += ' ';
  };
  const int32_t final_state =
      for_each_arc(op, graph, options,
                   [&](int32_t src, int32_t dst, int32_t label, int32_t aux_label, float score) {
                     put_column(src);
                     put_column(dst);
                     put_column(label);
                     if (!is_acceptor) put_column(aux_label);
                     put_float(out, score);
                     out += '\n';
                   });
  put_int(out, final_state);
  return out + "\n";
}

Graph from_k2_arcs(std::span<const int32_t> rows, std::span<const int32_t> aux_labels,
                   const LoadOptions& options) {
  constexpr const char* kOp = "from_k2";
  const size_t count = rows.size() / 4;
  K2Arcs arcs;
  int32_t final_state = 0;
  for (size_t a = 0; a < count; ++a) {
    arcs.src.push_back(rows[4 * a]);
    arcs.dst.push_back(rows[4 * a + 1]);
    arcs.ilabel.push_back(rows[4 * a + 2]);
    arcs.scores.push_back(std::bit_cast<float>(rows[4 * a + 3]));
    final_state = std::max(final_state, arcs.dst.back());
  }
  arcs.olabel.assign(aux_labels.begin(), aux_labels.end());
  require(aux_labels.empty() || aux_labels.size() == count, kOp,
          "aux_labels must have one label per arc, but there are ", aux_labels.size(),
          " labels for ", count, " arcs");
  require(count == 0 || final_state > 0, kOp, "the arcs must enter a final state, but none does");
  return build(std::move(arcs), final_state, kOp, "the FSA", options);
}

K2Rows to_k2_rows(const Graph& graph, const SaveOptions& options) {
  K2Rows out;
  const bool is_acceptor = graph.topology().is_acceptor();
  for_each_arc("to_k2", graph, options,
               [&](int32_t src, int32_t dst, int32_t label, int32_t aux_label, float score) {
                 out.rows.insert(out.rows.end(), {src, dst, label, std::bit_cast<int32_t>(score)});
                 if (!is_acceptor) out.aux_labels.push_back(aux_label);
               });
  return out;
}

}  // namespace arcgrad
