// SPDX-License-Identifier: MIT
// The style sheet of report.html. Internal to tools/report.
//
// Categorical colours follow the palette of Okabe and Ito, which stays distinct under the common
// forms of colour blindness; waiting time is hatched as well, and every bar has a tooltip.
#pragma once

namespace trainyard::report {

inline constexpr const char* kStyle = R"css(
:root {
  --bg: #ffffff; --fg: #1b1f24; --soft: #59636e; --line: #d5dae0; --band: #f5f7f9;
  --caution: #8a4b00; --caution-bg: #fff6e6; --caution-line: #e69f00;
  --bad: #9c1c1c; --bad-bg: #fdeeee; --focus: #0b62c4;
  --comp: #0072b2; --mem: #7fc0ea; --comm: #e69f00; --host: #009e73;
  --wait: #b9708f; --wait-bg: #f3e1ea; --idle: #e3e6ea; --lane: #f1f3f5;
  --in-dark: #ffffff; --in-light: #1b1f24;
  --h1: #dceaf6; --h2: #bfd9ee; --h3: #93bfe0; --h4: #5a9bcb; --h5: #2c76b0; --h6: #135290;
  --h7: #062c5c; --p0: #1b1f24; --p1: #ffffff;
}
@media (prefers-color-scheme: dark) {
  :root {
    --bg: #14171a; --fg: #e4e7ea; --soft: #9aa4ae; --line: #343b42; --band: #1c2024;
    --caution: #f2c069; --caution-bg: #2b2314; --caution-line: #c98a06;
    --bad: #ff9b94; --bad-bg: #331a1a; --focus: #6cb2ff;
    --comp: #3a93cf; --mem: #a5d3f0; --comm: #e69f00; --host: #1fae85;
    --wait: #cf88a8; --wait-bg: #47303c; --idle: #30363c; --lane: #1d2125;
    --in-dark: #0b0f13; --in-light: #14171a;
    --h1: #1c2c3a; --h2: #1f3e58; --h3: #235680; --h4: #2f76ae; --h5: #559fd4; --h6: #93c6ea;
    --h7: #dcf0ff; --p0: #ffffff; --p1: #14171a;
  }
}
* { box-sizing: border-box; }
html { -webkit-text-size-adjust: 100%; text-size-adjust: 100%; }
body { margin: 0; background: var(--bg); color: var(--fg);
  font: 15px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif;
  font-variant-numeric: tabular-nums lining-nums; }
main { max-width: 1076px; margin: 0 auto; padding: 28px 24px 56px; }
.defs { position: absolute; }
.product { margin: 0; color: var(--soft); font-size: 13px; }
h1 { margin: 2px 0 10px; font-size: 25px; line-height: 1.25; font-weight: 600;
  overflow-wrap: anywhere; }
h2 { margin: 34px 0 10px; padding-top: 12px; border-top: 1px solid var(--line); font-size: 18px;
  line-height: 1.3; font-weight: 600; }
h3 { margin: 18px 0 6px; font-size: 15px; font-weight: 600; }
p { margin: 0 0 10px; }
.lead { max-width: 76ch; font-size: 17px; overflow-wrap: anywhere; }
.remark { color: var(--caution); }
.meta { color: var(--soft); font-size: 13px; display: flex; flex-wrap: wrap; gap: 2px 18px; }
.meta span { overflow-wrap: anywhere; }
code { font: 12.5px ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace; }
.note { max-width: 92ch; margin: 8px 0 0; color: var(--soft); font-size: 13px;
  overflow-wrap: anywhere; }
.banner { margin: 0 0 14px; padding: 9px 14px; color: var(--bad); background: var(--bad-bg);
  border: 1px solid var(--bad); border-left-width: 5px; overflow-wrap: anywhere; }
.trust { list-style: none; margin: 0; padding: 0; }
.trust li { display: grid; grid-template-columns: 210px 1fr; gap: 0 18px; padding: 6px 12px;
  border-left: 4px solid var(--line); border-bottom: 1px solid var(--line);
  overflow-wrap: anywhere; }
.trust li:last-child { border-bottom: 0; }
.trust .caution { background: var(--caution-bg); border-left-color: var(--caution-line); }
.topic { font-weight: 600; }
.topic b { display: inline-block; margin-right: 4px; padding: 0 6px; font-size: 11.5px;
  font-weight: 600; line-height: 18px; color: var(--caution);
  border: 1px solid var(--caution-line); border-radius: 3px; }
.plain { margin: 0; padding-left: 20px; }
.plain li { overflow-wrap: anywhere; }
.cards { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 380px), 1fr));
  gap: 20px 40px; align-items: start; }
table { border-collapse: collapse; font-size: 13.5px; }
caption { text-align: left; font-weight: 600; padding-bottom: 4px; }
th, td { padding: 4px 8px; text-align: right; vertical-align: top; font-weight: 400;
  border-bottom: 1px solid var(--line); white-space: nowrap; }
thead th { color: var(--soft); font-size: 12.5px; vertical-align: bottom; white-space: normal;
  border-bottom-color: var(--soft); }
th.t, td.t { text-align: left; }
th:first-child, td:first-child { padding-left: 2px; }
.scroll { overflow-x: auto; max-width: 100%; }
.pairs { width: 100%; }
.pairs th { text-align: left; color: var(--soft); white-space: normal; }
.pairs td { white-space: normal; padding-right: 2px; overflow-wrap: anywhere; }
.scroll td.t:last-child { white-space: normal; min-width: 140px; overflow-wrap: anywhere; }
.scroll tbody th.t { white-space: normal; min-width: 150px; overflow-wrap: anywhere; }
.aural { position: absolute; width: 1px; height: 1px; overflow: hidden; clip-path: inset(50%);
  white-space: nowrap; }
details > summary { cursor: pointer; padding: 6px 0; color: var(--fg); }
:focus-visible { outline: 2px solid var(--focus); outline-offset: 2px; }
.legend { display: flex; flex-wrap: wrap; gap: 2px 18px; margin: 0 0 8px; font-size: 13px;
  color: var(--soft); }
.legend span { display: inline-flex; align-items: center; gap: 6px; }
.k { display: inline-block; width: 14px; height: 12px; flex: none; }
.k.hatch { background:
  repeating-linear-gradient(-45deg, var(--wait) 0 2px, var(--wait-bg) 2px 5px); }
.k.dot { width: 6px; height: 6px; border-radius: 3px; background: var(--fg); }
.k.h0, .k.s-idle { outline: 1px solid var(--line); outline-offset: -1px; }
.chart { display: flex; overflow-x: auto; max-width: 100%; }
.chart svg { flex: none; display: block; }
.chart .fluid { flex: 1 1 auto; min-width: 180px; max-width: 880px; width: 0; }
.fluid rect { stroke: var(--bg); stroke-width: 0.6; }
.chart .labels { position: sticky; left: 0; background: var(--bg); }
.chart text { font-size: 11px; fill: var(--soft); }
.chart .rank { fill: var(--fg); }
.chart .stream { font-size: 10.5px; }
.chart .tier { font-size: 12.5px; fill: var(--fg); }
.chart .in-bar { font-size: 9px; fill: var(--in-light); pointer-events: none; }
.chart .on-dark { fill: var(--in-dark); }
.grid { stroke: var(--line); }
.lane { fill: var(--lane); }
.s-comp { fill: var(--comp); background: var(--comp); }
.s-mem { fill: var(--mem); background: var(--mem); }
.s-comm { fill: var(--comm); background: var(--comm); }
.s-host { fill: var(--host); background: var(--host); }
.s-wait { fill: url(#hatch); }
.s-thin { fill: var(--wait); background: var(--wait); }
.s-idle { fill: var(--idle); background: var(--idle); }
.hatch-ground { fill: var(--wait-bg); }
.hatch-line { fill: var(--wait); }
.h0 { fill: none; stroke: var(--line); pointer-events: all; }
.h1 { fill: var(--h1); background: var(--h1); }
.h2 { fill: var(--h2); background: var(--h2); }
.h3 { fill: var(--h3); background: var(--h3); }
.h4 { fill: var(--h4); background: var(--h4); }
.h5 { fill: var(--h5); background: var(--h5); }
.h6 { fill: var(--h6); background: var(--h6); }
.h7 { fill: var(--h7); background: var(--h7); }
.p0 { fill: var(--p0); pointer-events: none; }
.p1 { fill: var(--p1); pointer-events: none; }
@media (max-width: 640px) {
  main { padding: 18px 14px 40px; }
  h1 { font-size: 21px; }
  .lead { font-size: 16px; }
  .trust li { grid-template-columns: 1fr; }
  .chart .labels { position: static; }
  .tick.odd { display: none; }
}
@media print {
  .scroll, .chart { overflow: visible; }
  section { break-inside: avoid-page; }
}
)css";

}  // namespace trainyard::report
