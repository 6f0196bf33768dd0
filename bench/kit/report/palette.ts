/**
 * Colors of the page and of the picture as CSS declarations, light and dark: those of src/web/style.css under the same names, and what
 * only charts have: `wrong` for what has no rank, `pale`, `p1` and `p2` beside `blue`, `faint` lines behind others, and bands strong enough
 * to tell the cells of a matrix apart.
 */
export const palette = {
  light:
    '--paper:#faf8f5;--ink:#1c1917;--soft:#645d55;--line:#e2dcd3;--fill:#f1ede7;--good:#10693f;--bad:#a5231b;--blue:#1f5fa8;' +
    '--wrong:#a1988e;--pale:#b9d3ee;--p1:#c14a09;--p2:#007a58;--faint:#d1c9bf;' +
    '--goodband:#d5efdf;--fairband:#fbecc4;--badband:#f8d3ca;',
  dark:
    '--paper:#12100f;--ink:#f2eeea;--soft:#aca39a;--line:#38332e;--fill:#262320;--good:#6bd6a1;--bad:#ff9a8f;--blue:#7fb5f2;' +
    '--wrong:#857c73;--pale:#2c4a6b;--p1:#ff9b5c;--p2:#35cfa0;--faint:#504942;' +
    '--goodband:#1d4531;--fairband:#50431a;--badband:#5c2a20;',
};
