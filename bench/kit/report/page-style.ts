/** How the page looks: light and dark, on a phone, on paper. */

const light = `--paper:#fff;--ink:#1b1f24;--soft:#57606a;--line:#d8dce1;--band:#f3f5f7;--good:#0b6b3f;--bad:#a32a12;
--wrong:#9aa1a9;--bar:#2f6db3;--pale:#b9d3ee;--p1:#c14a09;--p2:#007a58;--faint:#c9ced4;`;
const dark = `--paper:#15181c;--ink:#e6e9ed;--soft:#a6aeb8;--line:#363d46;--band:#1e2329;--good:#6dd19a;--bad:#ff9d88;
--wrong:#7c848e;--bar:#6aa9ea;--pale:#2c4a6b;--p1:#ff9b5c;--p2:#35cfa0;--faint:#454d57;`;

/** The colors by their names, as declarations. */
export const palette = { light: light.replaceAll('\n', ''), dark: dark.replaceAll('\n', '') };

export const style = `
:root{color-scheme:light dark;${light}}
@media screen and (prefers-color-scheme:dark){:root{${dark}}}
*{box-sizing:border-box}
html{-webkit-text-size-adjust:100%;text-size-adjust:100%}
body{margin:0;background:var(--paper);color:var(--ink);font:16px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,"Helvetica Neue",Arial,sans-serif}
main{max-width:1200px;margin:0 auto;padding:24px 24px 64px}
h1{font-size:1.6rem;line-height:1.2;margin:0 0 6px}
h2{font-size:1.3rem;line-height:1.25;margin:44px 0 8px}
header+section h2{margin-top:20px}
h3{font-size:1.05rem;margin:28px 0 6px}
h4{font-size:.84rem;margin:0;font-weight:600;overflow-wrap:anywhere}
p,dl,.prose ul{margin:0 0 10px;max-width:80ch}
ul{padding-left:20px}
li{margin:2px 0}
code{font:.9em ui-monospace,"SF Mono",Menlo,Consolas,monospace;overflow-wrap:anywhere}
.lead{font-size:1.1rem}
.when,.note{color:var(--soft);font-size:.85rem}
.notice{border-left:4px solid var(--bad);background:var(--band);padding:8px 14px;margin:12px 0;max-width:80ch}
.notice ul{margin:0}
:focus-visible{outline:2px solid var(--bar);outline-offset:2px}
summary{cursor:pointer;color:var(--soft);font-size:.9rem;padding:4px 0}
.filter{position:sticky;top:0;z-index:2;background:var(--paper);border-bottom:1px solid var(--line);font-size:.88rem;margin:8px 0 0}
.filter div{max-height:40vh;overflow:auto;display:flex;flex-wrap:wrap;gap:2px 18px;padding:2px 0 8px}
.filter label{display:inline-flex;gap:6px;align-items:center;padding:3px 0}
.filter button{font:inherit;padding:1px 10px}
ul.bars{list-style:none;margin:8px 0;padding:0;font-size:.9rem}
.bars li{display:grid;align-items:center;gap:0 10px;margin:0;padding:2px 0;min-height:24px;grid-template-columns:13em 1fr 8em}
.bars.ranking li{grid-template-columns:2em 13em minmax(0,1fr) 4.5em 13em 13.5em;min-height:28px}
.bars.ranges li{grid-template-columns:13em 1fr 12em}
.bars.goals li{grid-template-columns:20em minmax(0,1fr) 6em 9em 8em;min-height:30px}
.bars.correctness li{grid-template-columns:16em 1fr}
.bars b,.rank{font-variant-numeric:tabular-nums;text-align:right;font-weight:600;white-space:nowrap}
.bars b{text-align:left}
.ranking b{text-align:right}
.rank{color:var(--soft);font-weight:400}
.name{overflow-wrap:anywhere;line-height:1.2}
.beside{color:var(--soft);font-size:.82rem;font-variant-numeric:tabular-nums}
.audit{font-size:.82rem;line-height:1.2}
.audit.pass{color:var(--good)}.audit.fail{color:var(--bad)}.audit.unknown{color:var(--soft)}
.track{position:relative;height:16px;min-width:0}
.track i{position:absolute;top:0;height:100%;left:0}
.track .fill,.track .best{width:calc(var(--v)/var(--max)*100%);min-width:2px;border-radius:0 2px 2px 0}
.track .fill.signed{left:calc(var(--x)*100%);width:calc(var(--w)*100%)}
.fill{background:var(--bar)}.best{background:var(--pale)}
.wrong .fill,.wrong .part{background:repeating-linear-gradient(135deg,var(--wrong) 0 3px,transparent 3px 6px)}
.wrong .name,.wrong b{color:var(--soft)}
.track .whisker{left:calc(var(--a)/var(--max)*100%);width:calc((var(--b) - var(--a))/var(--max)*100%);top:7px;height:2px;background:var(--ink);border-radius:0}
.stack{display:flex;height:100%}
.stack .part{position:static!important;width:calc(var(--v)/var(--max)*100%)}
.part.p0{background:var(--bar)}.part.p1{background:var(--p1)}.part.p2{background:var(--p2)}.part.p3{background:var(--soft)}
.legend{display:flex;gap:4px 18px;font-size:.82rem;color:var(--soft);flex-wrap:wrap;margin:4px 0}
.legend span{display:inline-flex;align-items:center;gap:6px}
.legend i.part{width:14px;height:10px}
.legend i.dot{position:static;transform:none}
.ranges .track,.goals .track{background:linear-gradient(var(--line),var(--line)) 0 50%/100% 1px no-repeat}
.span{left:calc(var(--x)*100%)!important;width:calc(var(--w)*100%);top:7px!important;height:2px!important;background:var(--bar)}
.wrong .span{background:var(--wrong)}
.dot{width:10px;height:10px!important;border-radius:50%;background:var(--bar);left:calc(var(--x)*100%)!important;top:3px!important;transform:translateX(-50%);border:2px solid var(--bar)}
.dot.d0{background:var(--paper)}.dot.d1{background:var(--pale)}.goals .dot{background:var(--bar)}
.wrong .dot{border-color:var(--wrong)}
.wanted{left:calc(var(--a)*100%)!important;width:calc((var(--b) - var(--a))*100%);background:var(--band);border:solid var(--soft);border-width:0 0 0 2px}
.wanted.most{border-width:0 2px 0 0}
.axis{color:var(--soft);font-size:.78rem}
.axis .track{background:none}
.axis .track i{font-style:normal;left:calc(var(--x)*100%);transform:translateX(-50%);line-height:16px}
.shared{position:absolute;width:0;height:0}
ul.panels{list-style:none;padding:0;margin:8px 0;display:grid;grid-template-columns:repeat(auto-fill,minmax(165px,1fr));gap:14px 16px}
.panels.one{grid-template-columns:minmax(0,520px)}
.panels svg{display:block;width:100%;height:auto;margin:2px 0 0}
.panels p{color:var(--soft);font-size:.78rem;margin:0;font-variant-numeric:tabular-nums}
.grid path{stroke:var(--line);stroke-width:1}
.grid text{fill:var(--soft);font-size:9.5px}
.others polyline{fill:none;stroke:var(--faint);stroke-width:1}
.own polyline{fill:none;stroke:var(--bar);stroke-width:2.2;stroke-linejoin:round}
.own circle{fill:var(--bar)}
.wrong .own polyline{stroke:var(--wrong);stroke-dasharray:4 3}
.scroll{overflow-x:auto;margin:8px 0;background:linear-gradient(90deg,var(--paper) 30%,transparent) 0 0/40px 100% local,linear-gradient(270deg,var(--paper) 30%,transparent) 100% 0/40px 100% local,linear-gradient(90deg,var(--line),transparent) 0 0/10px 100%,linear-gradient(270deg,var(--line),transparent) 100% 0/10px 100%;background-repeat:no-repeat}
.hint{display:none;color:var(--soft);font-size:.8rem;margin:0}
table{border-collapse:collapse;font-size:.84rem;line-height:1.35;font-variant-numeric:tabular-nums}
th,td{padding:5px 10px;border-bottom:1px solid var(--line);vertical-align:top;text-align:left;white-space:nowrap}
thead th{color:var(--soft);font-weight:600;vertical-align:bottom;border-bottom:1px solid var(--soft)}
tbody th{font-weight:600;position:sticky;left:0;background:var(--paper)}
.right{text-align:right}
dl{display:grid;gap:4px;font-size:.9rem;max-width:100ch}
dl div{display:grid;grid-template-columns:11em 1fr;gap:12px}
dt{font-weight:600;overflow-wrap:anywhere}
dd{margin:0}
.prose{font-size:.92rem}
@media screen and (max-width:900px){
main{padding:14px 14px 40px}
h1{font-size:1.35rem}
.lead{font-size:1rem}
.bars.ranking li,.bars.goals li{grid-template-columns:1.6em minmax(0,1fr) auto;padding:3px 0;gap:0 8px}
.bars.ranking li .name{grid-area:1/2}.bars.ranking li b{grid-area:1/3}
.bars.ranking li .track{grid-area:2/2/3/4;height:12px}.track .whisker,.span{top:5px!important}
.bars.ranking li .beside{grid-area:3/2}.bars.ranking li .audit{grid-area:3/3;text-align:right}
.bars.ranking .rank{text-align:left}
.bars.goals li,.bars.correctness li{grid-template-columns:minmax(0,1fr) auto}.bars b{text-align:right}
.bars.goals li .track{grid-column:1/3;grid-row:2}.bars.goals li .audit{text-align:right}
.bars.single li,.bars.ranges li{grid-template-columns:minmax(0,1fr) auto;padding:3px 0}
.bars.single .track,.bars.ranges .track{grid-column:1/3;grid-row:2;height:12px}
.dot{top:1px!important}
.hint{display:block}
dl div{grid-template-columns:1fr;gap:0}
}
@media print{
@page{size:A4 landscape;margin:12mm}
body{font-size:10.5pt}main{max-width:none;padding:0}
h2,h3{break-after:avoid}.filter,.hint{display:none}
.scroll{overflow:visible;background:none}table{font-size:7pt}th,td{padding:2px 4px;white-space:normal}tbody th{position:static}
li,tr{break-inside:avoid}
.track i,.wanted{print-color-adjust:exact;-webkit-print-color-adjust:exact}
}
`;
