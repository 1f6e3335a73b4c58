#include "arcgrad/autograd/arc_sources.h"

#include <algorithm>
#include <cstdint>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "arcgrad/autograd/tape.h"
#include "arcgrad/core/graph_state.h"
#include "arcgrad/runtime/error.h"
#include "arcgrad/runtime/interrupt_poll.h"

// The tape is walked from the result to the input, the highest level first. Each variable on the
// way gets the pairs (arc of the result, arc of the variable) that belong together; the rule of an
// entry turns the pairs of its output into those of its inputs.

namespace arcgrad {
namespace {

constexpr char kOp[] = "arc_sources";

/// An arc of the result and an arc that it came from, in one number, so that pairs sort fast.
using Link = uint64_t;
Link link(int32_t arc, int32_t source) {
  return static_cast<uint64_t>(arc) << 32 | static_cast<uint32_t>(source);
}

/// The entries between the result and the input, the highest level first.
std::vector<Entry*> entries_between(const Var& result, const Var& input) {
  std::vector<Entry*> all, stack;
  std::unordered_set<const Entry*> seen;
  const auto visit = [&](Entry* entry) {
    if (entry && seen.insert(entry).second) stack.push_back(entry);
  };
  visit(result.entry.get());
  InterruptPoll poll;
  while (!stack.empty()) {
    Entry* entry = stack.back();
    stack.pop_back();
    all.push_back(entry);
    for (const auto& var : entry->get(kOp)->inputs) {
      poll();
      if (var && var.get() != &input) visit(var->entry.get());
    }
  }
  std::ranges::sort(all, {}, &Entry::level);
  std::unordered_set<const Entry*> leads;
  for (const Entry* entry : all)
    for (const auto& var : const_cast<Entry*>(entry)->get(kOp)->inputs)
      if (var && (var.get() == &input || leads.contains(var->entry.get()))) leads.insert(entry);
  std::erase_if(all, [&](const Entry* entry) { return !leads.contains(entry); });
  std::ranges::reverse(all);
  return all;
}

ArcSources to_sources(const std::vector<Link>& links, int32_t num_arcs) {
  ArcSources out;
  out.offset.assign(static_cast<size_t>(num_arcs) + 1, 0);
  out.arcs.reserve(links.size());
  for (const Link l : links) {
    ++out.offset[static_cast<size_t>(l >> 32) + 1];
    out.arcs.push_back(static_cast<int32_t>(l));
  }
  for (size_t k = 1; k < out.offset.size(); ++k) out.offset[k] += out.offset[k - 1];
  return out;
}

void sort_links(std::vector<Link>& links) {
  if (!std::ranges::is_sorted(links)) interruptible_sort(links);
  links.erase(std::unique(links.begin(), links.end()), links.end());
}

}  // namespace

ArcSources arc_sources(const Graph& result, const Graph& input) {
  const int32_t num_arcs = result.num_arcs();
  std::vector<Link> identity;
  for (int32_t k = 0; k < num_arcs; ++k) identity.push_back(link(k, k));
  if (result.is_same(input)) return to_sources(identity, num_arcs);
  const auto from = input.var(), to = result.var();
  require(from != nullptr, kOp,
          "the input must have calc_grad, so that the ops on it are recorded, but it has not");
  const std::vector<Entry*> entries = to ? entries_between(*to, *from) : std::vector<Entry*>();
  require(from == to || !entries.empty(), kOp,
          "the result must be recorded as computed from the input, but it is not");
  std::unordered_map<const Var*, std::vector<Link>> links;
  // The outputs of an entry are known by their number.
  std::unordered_map<const Entry*, std::vector<std::pair<int32_t, const Var*>>> outputs;
  links[to.get()] = std::move(identity);
  if (to->entry) outputs[to->entry.get()].emplace_back(to->output, to.get());
  InterruptPoll poll;
  std::vector<int32_t> found;
  const std::unordered_set<const Entry*> leads(entries.begin(), entries.end());
  for (Entry* entry : entries) {
    const auto body = entry->get(kOp);
    for (const auto& [output, var] : outputs[entry]) {
      std::vector<Link> below = std::move(links[var]);
      sort_links(below);
      for (size_t i = 0; i < body->inputs.size(); ++i) {
        const std::shared_ptr<Var>& in = body->inputs[i];
        if (!in || (in != from && !leads.contains(in->entry.get()))) continue;
        const auto [at, is_new] = links.try_emplace(in.get());
        if (is_new && in != from) outputs[in->entry.get()].emplace_back(in->output, in.get());
        for (const Link l : below) {
          found.clear();
          body->rule->add_sources(i, static_cast<int32_t>(l), found);
          for (const int32_t source : found) {
            poll();
            at->second.push_back(link(static_cast<int32_t>(l >> 32), source));
          }
        }
      }
    }
  }
  std::vector<Link>& all = links[from.get()];
  // Arcs may also have come from node weights.
  std::erase_if(all, [&](Link l) { return static_cast<int32_t>(l) >= input.num_arcs(); });
  sort_links(all);
  return to_sources(all, num_arcs);
}

}  // namespace arcgrad
