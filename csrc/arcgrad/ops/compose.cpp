#include "arcgrad/ops/compose.h"
#include <chrono>
#include <cstdio>
#include <cstdlib>

#include <algorithm>
#include <bit>
#include <utility>
#include <vector>

#include "arcgrad/ops.h"
#include "arcgrad/tape.h"

namespace arcgrad {
namespace {
unsigned long long X, R;
double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count() * 1e3; }

struct Pair {
  int32_t first, second;
  bool waits;
};
using Key = uint64_t;
Key pack(Pair p) {
  return static_cast<Key>(p.first) << 32 | static_cast<Key>(p.second) << 1 | static_cast<Key>(p.waits);
}
Pair unpack(Key key) {
  return {static_cast<int32_t>(key >> 32), static_cast<int32_t>((key & 0xffffffff) >> 1), (key & 1) != 0};
}

#ifndef DIRECT
#define DIRECT 1
#endif
class PairIds {
 public:
  PairIds(const char* op, int32_t n1, int32_t n2) : op_(op), row_(2 * static_cast<uint64_t>(n2)), all_(n1 * row_) {
    resize(1024);
  }
  const std::vector<Key>& keys() const { return keys_; }
  int32_t size() const { return static_cast<int32_t>(keys_.size()); }
  void prefetch(Key key) const { __builtin_prefetch(&slots_[slot(key)]); }

  int32_t operator[](Key key) {
    size_t s = slot(key);
    while (slots_[s] >= 0) {
      if (direct_ || keys_[static_cast<size_t>(slots_[s])] == key) return slots_[s];
      s = (s + 1) & mask_;
    }
    const int32_t id = size();
    slots_[s] = id;
    keys_.push_back(key);
    if (keys_.size() > limit_) resize(2 * slots_.size());
    return id;
  }

 private:
  size_t slot(Key key) const { return ((key >> 32) * row_ + (key & 0xffffffff)) * factor_ >> shift_; }

  void resize(size_t count) {
    direct_ = DIRECT && count >= all_;
    if (direct_) { factor_ = 1; shift_ = 0; limit_ = count = all_; }
    else { factor_ = 0x9e3779b97f4a7c15; shift_ = 64 - std::countr_zero(count); limit_ = count / 2; mask_ = count - 1; }
    slots_.assign(count, -1);
    for (int32_t id = 0; id < size(); ++id) {
      size_t s = slot(keys_[static_cast<size_t>(id)]);
      while (slots_[s] >= 0) s = (s + 1) & mask_;
      slots_[s] = id;
    }
  }

  const char* op_;
  uint64_t row_, all_, factor_ = 1;
  std::vector<Key> keys_;
  std::vector<int32_t> slots_;
  size_t mask_ = 0, limit_ = 0;
  int shift_ = 64;
  bool direct_ = false;
};

struct Move {
  int32_t first, second;
};
template <class T>
struct Buf {
  T* p = nullptr;
  size_t n = 0, cap = 0;
  ~Buf() { free(p); }
  void room(size_t more) {
    if (n + more <= cap) return;
    cap = std::max(n + more, std::max<size_t>(1024, 2 * cap));
    p = static_cast<T*>(realloc(p, cap * sizeof(T)));
  }
  void push_back(T x) { room(1); p[n++] = x; }
  T& operator[](size_t i) { return p[i]; }
  const T& operator[](size_t i) const { return p[i]; }
  size_t size() const { return n; }
  void clear() { n = 0; }
};
#ifdef VEC
template <class T> using Grow = std::vector<T>;
#else
template <class T> using Grow = Buf<T>;
#endif

struct Slots {
  const LabelIndex& index;
  int32_t begin, end;
  int32_t size() const { return end - begin; }
};

int32_t lower_bound(const int32_t* label, int32_t at, int32_t end, int32_t x) {
  for (int32_t len = end - at; len > 0;) {
    const int32_t half = (len+1) / 2;
    at += label[at + half - 1] < x ? half : 0;
    len -= half;
  }
  return at;
}

template <class Emit>
void match(const Slots& few, const Slots& many, Emit emit) {
  const int32_t* label = few.index.label.data();
  const int32_t* target = many.index.label.data();
  const auto search = [&](int32_t k) {
    const int32_t x = label[k];
    for (int32_t m = lower_bound(target, many.begin, many.end, x); m < many.end && target[m] == x; ++m) emit(k, m);
  };
  if (many.size() <= 64 && many.size() < 8 * few.size()) {
    uint64_t mask = 0;
    for (int32_t m = many.begin; m < many.end; ++m) mask |= uint64_t{1} << (target[m] & 63);
    int32_t candidate[65], count = 0;
    for (int32_t k = few.begin; k < few.end; ++k) {
      candidate[count] = k;
      count += (mask >> (label[k] & 63)) & 1;
    }
    for (int32_t i = 0; i < count; ++i) search(candidate[i]);
    return;
  }
  for (int32_t k = few.begin; k < few.end; ++k) search(k);
}

class Explorer {
 public:
  Explorer(const char* op, const Topology& first, const Topology& second)
      : op_(op), index1_(first.index(Side::output)), index2_(second.index(Side::input)),
        accept1_(flags(first)), accept2_(flags(second)), ids(op, first.num_nodes(), second.num_nodes()) {
    for (int32_t s1 : first.start())
      for (int32_t s2 : second.start()) ids[pack({s1, s2, false})];
    num_start = ids.size();
    offset.push_back(0);
    for (int32_t done = 0; done < ids.size();) {
      const int32_t end = std::min(ids.size(), done + 32);
      targets_.clear();
      unsigned long long c0 = __builtin_ia32_rdtsc();
      for (int32_t i = done; i < end; ++i) { Pair p = unpack(ids.keys()[i]); __builtin_prefetch(&index1_.offset[p.first]); __builtin_prefetch(&index2_.offset[p.second]); }
      for (int32_t i = done; i < end; ++i) { Pair p = unpack(ids.keys()[i]); int b1=index1_.offset[p.first], b2=index2_.offset[p.second];
       __builtin_prefetch(&index1_.label[b1]); __builtin_prefetch(&index2_.label[b2]);
       __builtin_prefetch(&index1_.arc[b1]); __builtin_prefetch(&index2_.arc[b2]);
       __builtin_prefetch(&index1_.dst[b1]); __builtin_prefetch(&index2_.dst[b2]);
       }
      for (; done < end; ++done) expand(unpack(ids.keys()[done]));
      unsigned long long c1 = __builtin_ia32_rdtsc();
      X += c1 - c0;
      for (size_t i = 0; i < targets_.size(); ++i) dst.push_back(ids[targets_[i]]);
      R += __builtin_ia32_rdtsc() - c1;
    }
  }
  bool is_accept(int32_t n) const { Pair p = unpack(ids.keys()[n]); return accept1_[p.first] && accept2_[p.second]; }

 private:
  static std::vector<bool> flags(const Topology& t) {
    std::vector<bool> f(t.num_nodes());
    for (int32_t n : t.accept()) f[n] = 1;
    return f;
  }
  void emit(int32_t slot1, int32_t slot2, Pair p) {
    Key k = pack(p);
    ids.prefetch(k);
    targets_.push_back(k);
    moves.push_back({slot1, slot2});
  }
  void expand(Pair p) {
    int32_t b1 = index1_.offset[p.first], e1 = index1_.offset[p.first + 1];
    int32_t b2 = index2_.offset[p.second], e2 = index2_.offset[p.second + 1];
    const auto& l1 = index1_.label;
    const auto& l2 = index2_.label;
    const bool some1 = b1 < e1 && l1[b1] == kEpsilon;
    const bool all1 = (b1 == e1 || l1[e1 - 1] == kEpsilon) && !accept1_[p.first];
    for (; b2 < e2 && l2[b2] == kEpsilon; ++b2)
      if (!all1) emit(-1, index2_.arc[b2], {p.first, index2_.dst[b2], some1});
    for (; b1 < e1 && l1[b1] == kEpsilon; ++b1)
      if (!p.waits) emit(index1_.arc[b1], -1, {index1_.dst[b1], p.second, false});
    const Slots left{index1_, b1, e1}, right{index2_, b2, e2};
    auto e = [&](int32_t k1, int32_t k2) { emit(index1_.arc[k1], index2_.arc[k2], {index1_.dst[k1], index2_.dst[k2], false}); };
    if (left.size() <= right.size())
      match(left, right, e);
    else
      match(right, left, [&](int32_t k2, int32_t k1) { e(k1, k2); });
    offset.push_back(moves.size());
  }
  const char* op_;
  const LabelIndex &index1_, &index2_;
  std::vector<bool> accept1_, accept2_;
  Grow<Key> targets_;
 public:
  PairIds ids;
  Grow<Move> moves;
  Grow<int32_t> dst;
  std::vector<int32_t> offset;
  int32_t num_start;
};

using Bits = std::vector<bool>;
bool sweep(const Explorer& e, Bits& keep) {
  bool changed = false;
  for (int32_t n = e.ids.size(); n-- > 0;) {
    if (keep[n]) continue;
    for (int32_t k = e.offset[n]; k < e.offset[n + 1]; ++k)
      if (keep[e.dst[k]]) { keep[n] = 1; changed = true; break; }
  }
  return changed;
}
Bits useful(const Explorer& e) {
  const int32_t N = e.ids.size();
  Bits keep(N);
  for (int32_t i = 0; i < N; ++i) if (e.is_accept(i)) keep[i] = 1;
  double t0 = now();
  int c = 0;
  int lim = getenv("SW") ? atoi(getenv("SW")) : 8;
  while (c < lim) if (!sweep(e, keep)) return keep; else ++c;
  double t1 = now();
  struct W { int32_t src, next; };
  std::vector<int32_t> head(N, -1), stack;
  std::vector<W> wait;
  for (int32_t n = N; n-- > 0;) {
    if (keep[n]) continue;
    bool ok = false;
    for (int32_t k = e.offset[n]; k < e.offset[n + 1]; ++k) ok |= keep[e.dst[k]];
    if (!ok) {
      for (int32_t k = e.offset[n]; k < e.offset[n + 1]; ++k) { int32_t& h = head[e.dst[k]]; wait.push_back({n, h}); h = wait.size() - 1; }
      continue;
    }
    keep[n] = 1;
    stack.push_back(n);
    while (!stack.empty()) {
      int32_t m = stack.back(); stack.pop_back();
      for (int32_t w = head[m]; w >= 0; w = wait[w].next)
        if (!keep[wait[w].src]) { keep[wait[w].src] = 1; stack.push_back(wait[w].src); }
    }
  }
  if (getenv("T")) printf("sweeps %d %.1f wait %.1f (%zu)\n", c, t1 - t0, now() - t1, wait.size());
  return keep;
}
}  // namespace

Graph compose_as(const char* op, const Graph& first, const Graph& second) {
  double t0 = now();
  Explorer e(op, first.topology(), second.topology());
  double t1 = now();
  auto keep = useful(e);
  double t2 = now();
  Arrays out;
  std::vector<int32_t> id(e.ids.size()), map1, map2;
  for (int32_t i = 0; i < e.ids.size(); ++i) {
    id[i] = keep[i] ? out.num_nodes++ : -1;
    if (keep[i] && i < e.num_start) out.start.push_back(id[i]);
    if (e.is_accept(i)) out.accept.push_back(id[i]);
  }

  auto il = first.topology().ilabel();
  auto ol = second.topology().olabel();
  size_t count = 0;
  for (int32_t i = 0; i < e.ids.size(); ++i)
    if (keep[i])
      for (int32_t k = e.offset[i]; k < e.offset[i + 1]; ++k) count += keep[e.dst[k]];
  out.src.resize(count); out.dst.resize(count); out.ilabel.resize(count); map1.resize(count); map2.resize(count);
  bool acc = first.topology().is_acceptor() && second.topology().is_acceptor();
  if (!acc) out.olabel.resize(count);
  size_t to = 0;
  for (int32_t i = 0; i < e.ids.size(); ++i)
    if (keep[i])
      for (int32_t k = e.offset[i]; k < e.offset[i + 1]; ++k)
        if (int32_t d = id[e.dst[k]]; d >= 0) {
          auto [a1, a2] = e.moves[k];
          out.src[to] = id[i];
          out.dst[to] = d;
          out.ilabel[to] = a1 < 0 ? kEpsilon : il[a1];
          if (!acc) out.olabel[to] = a2 < 0 ? kEpsilon : ol[a2];
          map1[to] = a1;
          map2[to++] = a2;
        }
  if (out.ilabel == out.olabel) out.olabel.clear();
  double t3 = now();
  auto g = record_moves(op, std::move(out),
                      {{first, ArcMap::gather(std::move(map1))}, {second, ArcMap::gather(std::move(map2))}});
  double t4 = now(); if (getenv("T")) printf("expand %.1f resolve %.1f\n",X/2.445e6,R/2.445e6);X=R=0;
  if (getenv("T")) printf("explore %.1f (%d nodes %zu moves) trim %.1f build %.1f record %.1f\n", t1 - t0, e.ids.size(), e.moves.size(), t2 - t1, t3 - t2, t4 - t3);
  return g;
}

Graph compose(const Graph& first, const Graph& second) {
  return compose_as("compose", first, second);
}

}  // namespace arcgrad
