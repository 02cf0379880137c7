// SPDX-License-Identifier: MIT
#include "sim/huge_pages.h"

#if defined(__linux__) && defined(__GLIBC__)
#  include <malloc.h>
#  include <sys/mman.h>
#  include <unistd.h>

#  include <cstdint>
#  include <cstdlib>
#endif

namespace trainyard {

#if defined(__linux__) && defined(__GLIBC__)

void use_huge_pages() {
#  if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  constexpr std::uintptr_t kPage = std::uintptr_t{2} << 20;
  constexpr int kHeap = 1 << 30;  // addresses, not memory
  // Arrays below this come from the heap, which the C library would come to by itself when some
  // have been freed.
  mallopt(M_MMAP_THRESHOLD, 32 << 20);
  mallopt(M_TRIM_THRESHOLD, kHeap);
  mallopt(M_TOP_PAD, kHeap);
  // The heap grows once, beyond what is left of it.
  const auto before = reinterpret_cast<std::uintptr_t>(sbrk(0));
  void* volatile grown = std::malloc(16 << 20);  // not to be left out
  const auto end = reinterpret_cast<std::uintptr_t>(sbrk(0));
  std::free(grown);
  mallopt(M_TOP_PAD, 1 << 20);
  const std::uintptr_t first = (before + kPage - 1) / kPage * kPage;
  if (end > first) madvise(reinterpret_cast<void*>(first), end - first, MADV_HUGEPAGE);
#  endif
}

#else

void use_huge_pages() {}

#endif

}  // namespace trainyard
