/** How the page looks: light and dark, on a phone, on paper. */

const light = `
--paper: #fff; --ink: #1b1f24; --soft: #57606a; --line: #d8dce1; --band: #f3f5f7;
--good: #0b6b3f; --bad: #a32a12; --wrong: #767d86; --bar: #2f6db3;
--series-0: #0068a8; --series-1: #c14a09; --series-2: #007a58; --series-3: #a83a83; --series-4: #7f6000;
--series-5: #5a48b5; --series-6: #3f454c;
`;

const dark = `
--paper: #15181c; --ink: #e6e9ed; --soft: #a6aeb8; --line: #363d46; --band: #1e2329;
--good: #6dd19a; --bad: #ff9d88; --wrong: #949ca6; --bar: #6aa9ea;
--series-0: #5ab6f0; --series-1: #ff9b5c; --series-2: #35cfa0; --series-3: #f39ad0; --series-4: #e3c54c;
--series-5: #b0a4ff; --series-6: #c9ced4;
`;

/** The colours by their names, as declarations. */
export const palette = { light: light.replaceAll('\n', ''), dark: dark.replaceAll('\n', '') };

export const style = `
:root { color-scheme: light dark; ${light} }
@media screen and (prefers-color-scheme: dark) { :root { ${dark} } }
* { box-sizing: border-box; }
html { -webkit-text-size-adjust: 100%; text-size-adjust: 100%; }
body { margin: 0; background: var(--paper); color: var(--ink);
  font: 16px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif; }
main { max-width: 1200px; margin: 0 auto; padding: 32px 24px 64px; }
h1 { font-size: 1.75rem; line-height: 1.2; margin: 0 0 8px; }
h2 { font-size: 1.35rem; line-height: 1.25; margin: 56px 0 12px; padding-top: 16px; border-top: 1px solid var(--line); }
h3 { font-size: 1.05rem; margin: 32px 0 8px; }
p, ul, dl { margin: 0 0 12px; max-width: 76ch; }
ul { padding-left: 20px; }
li { margin: 2px 0; }
code { font: .9em ui-monospace, "SF Mono", Menlo, Consolas, monospace; overflow-wrap: anywhere; }
.lead { font-size: 1.15rem; }
.when, .note, figcaption p { color: var(--soft); font-size: .9rem; }
figcaption .finding { color: var(--ink); font-size: 1rem; margin-bottom: 4px; }
.notice { border-left: 4px solid var(--bad); background: var(--band); padding: 10px 14px; margin: 16px 0; max-width: 76ch; }
.notice :last-child { margin-bottom: 0; }
.scroll { overflow-x: auto; margin: 12px 0; }
:focus-visible { outline: 2px solid var(--bar); outline-offset: 2px; }
table { border-collapse: collapse; font-size: .84rem; line-height: 1.35; font-variant-numeric: tabular-nums; }
th, td { padding: 6px 10px; border-bottom: 1px solid var(--line); vertical-align: top; text-align: left; }
thead th { color: var(--soft); font-weight: 600; vertical-align: bottom; border-bottom: 1px solid var(--soft); }
thead .group[colspan] { border-bottom: 1px solid var(--line); text-align: center; }
tbody th { font-weight: 600; white-space: nowrap; position: sticky; left: 0; background: var(--paper); }
td.right, thead .left { white-space: nowrap; }
.right { text-align: right; }
.group { border-left: 1px solid var(--line); }
td ul { min-width: 24em; margin: 0; padding-left: 16px; }
td small { display: block; color: var(--soft); font-size: .88em; }
table.ranking { width: 100%; }
.word { font-weight: 600; }
.word.faster { color: var(--good); }
.word.slower { color: var(--bad); }
.word.tie { color: var(--soft); }
figure { margin: 0; }
figure > svg { display: block; width: 100%; height: auto; margin: 4px 0; }
figure > svg.wide { max-width: 1152px; }
figure > svg.narrow { display: none; max-width: 460px; }
.legend { list-style: none; padding: 0; margin: 4px 0 12px; max-width: 1152px; display: flex; flex-wrap: wrap; gap: 4px 22px;
  font-size: .84rem; }
.legend.narrow { display: none; }
.legend li { display: flex; align-items: center; gap: 8px; margin: 0; }
.legend svg { flex: none; }
summary { cursor: pointer; color: var(--soft); font-size: .9rem; padding: 4px 0; }
dl { display: grid; gap: 6px; max-width: 100ch; font-size: .92rem; }
dl div { display: grid; grid-template-columns: 11em 1fr; gap: 12px; }
dt { font-weight: 600; overflow-wrap: anywhere; }
dd { margin: 0; }
@media screen and (max-width: 820px) {
  main { padding: 20px 16px 48px; }
  h1 { font-size: 1.45rem; }
  h2 { margin-top: 40px; }
  figure > svg.wide { display: none; }
  figure > svg.narrow { display: block; }
  .legend.narrow { display: flex; }
  th, td { padding: 6px 8px; }
  tbody th { white-space: normal; min-width: 9.5em; overflow-wrap: break-word; }
  dl div { grid-template-columns: 1fr; gap: 0; }
}
@media print {
  @page { size: A4 landscape; margin: 12mm; }
  body { font-size: 10.5pt; }
  main { max-width: none; padding: 0; }
  h2, h3 { break-after: avoid; }
  .scroll { overflow: visible; }
  table { font-size: 7.5pt; }
  th, td { padding: 3px 5px; }
  thead { display: table-header-group; }
  tr, figure, li, dl div { break-inside: avoid; }
  tbody th { position: static; }
  figure > svg.wide { max-width: 230mm; max-height: 125mm; }
  details:not([open]) { display: none; }
}
`;
