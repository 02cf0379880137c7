// SPDX-License-Identifier: MIT
#pragma once

namespace trainyard {

/// Asks for large pages for what is allocated from now on. The state of a packet simulation is read
/// all over, and with pages of 4 KiB finding a page costs more than reading it: +15 % packets per
/// second (docs/engine.md). To be called first in main(); without effect where the system has none.
void use_huge_pages();

}  // namespace trainyard
