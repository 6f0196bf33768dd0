/** Colors of the page and of the picture as CSS declarations, light and dark. */
export const palette = {
  light:
    '--paper:#fff;--ink:#1b1f24;--soft:#57606a;--line:#d8dce1;--band:#f3f5f7;--good:#0b6b3f;--bad:#a32a12;' +
    '--wrong:#9aa1a9;--bar:#2f6db3;--pale:#b9d3ee;--p1:#c14a09;--p2:#007a58;--faint:#c9ced4;' +
    '--goodband:#d5efdf;--fairband:#fbecc4;--badband:#f8d3ca;',
  dark:
    '--paper:#15181c;--ink:#e6e9ed;--soft:#a6aeb8;--line:#363d46;--band:#1e2329;--good:#6dd19a;--bad:#ff9d88;' +
    '--wrong:#7c848e;--bar:#6aa9ea;--pale:#2c4a6b;--p1:#ff9b5c;--p2:#35cfa0;--faint:#454d57;' +
    '--goodband:#1d4531;--fairband:#50431a;--badband:#5c2a20;',
};
