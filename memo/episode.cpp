// SPDX-License-Identifier: MIT
#include "memo/episode.h"

#include <algorithm>

namespace trainyard {

void EpisodeStore::index(const std::shared_ptr<Episode>& e) {
  index_[e->hashes.back()].push_back(e);
}

const std::vector<std::weak_ptr<Episode>>* EpisodeStore::find(const Hash128& prefix) const {
  const auto it = index_.find(prefix);
  return it == index_.end() ? nullptr : &it->second;
}

void EpisodeStore::used(const std::shared_ptr<Episode>& e) {
  const auto it = kept_.find(e.get());
  if (it != kept_.end()) it->second.last_use = ++clock_;
}

void EpisodeStore::keep(const std::shared_ptr<Episode>& e) {
  const size_t size = e->bytes();
  kept_[e.get()] = {e, ++clock_, size};
  bytes_ += size;
  if (bytes_ <= limit_) return;
  // Down to three quarters at once, so that this is rare.
  std::vector<std::pair<uint64_t, const Episode*>> by_use;
  for (const auto& [key, kept] : kept_) by_use.emplace_back(kept.last_use, key);
  std::sort(by_use.begin(), by_use.end());
  for (const auto& entry : by_use) {
    if (bytes_ <= limit_ / 4 * 3) break;
    const auto it = kept_.find(entry.second);
    bytes_ -= it->second.bytes;
    kept_.erase(it);
    ++evicted_;
  }
  forget_prefixes();
}

void EpisodeStore::forget_prefixes() {
  for (auto it = index_.begin(); it != index_.end();) {
    std::erase_if(it->second, [](const std::weak_ptr<Episode>& e) { return e.expired(); });
    it = it->second.empty() ? index_.erase(it) : std::next(it);
  }
}

}  // namespace trainyard
