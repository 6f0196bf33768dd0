/** What a test looks at in the report's page. These functions run in the browser: they know nothing but its document. */

interface Box {
  readonly left: number;
  readonly right: number;
  readonly top: number;
  readonly bottom: number;
  readonly width: number;
  readonly height: number;
}

/** As much of a browser's elements as is used here; the rest of this repository has no document. */
interface PageElement {
  readonly tagName: string;
  readonly textContent: string | null;
  readonly parentElement: PageElement | null;
  readonly childNodes: Iterable<{ readonly nodeType: number; readonly textContent: string | null }>;
  readonly scrollWidth: number;
  /** Of an SVG alone. */
  readonly viewBox: { readonly baseVal: { readonly width: number } };
  /** Of what unfolds. */
  open: boolean;
  closest(selector: string): PageElement | null;
  querySelector(selector: string): PageElement | null;
  querySelectorAll(selector: string): Iterable<PageElement>;
  getBBox(): Box;
  getBoundingClientRect(): Box;
  getClientRects(): { readonly length: number };
}

declare const document: PageElement & { readonly body: PageElement; readonly documentElement: PageElement };
declare function getComputedStyle(
  element: PageElement,
): Readonly<Record<'display' | 'color' | 'fill' | 'stroke' | 'fontSize' | 'backgroundColor', string>>;

/** The page's width, in px, when all that is folded is unfolded. */
export function unfoldedWidth(): number {
  for (const details of document.querySelectorAll('details')) details.open = true;
  return document.documentElement.scrollWidth;
}

/** The colour of the text, and which of the two drawings of a chart is shown. */
export function inspectScheme(): { ink: string; wide: string; narrow: string } {
  const display = (selector: string): string => {
    const drawing = document.querySelector(selector);
    return drawing === null ? 'missing' : getComputedStyle(drawing).display;
  };
  return {
    ink: getComputedStyle(document.body).color,
    wide: display('figure > svg.wide'),
    narrow: display('figure > svg.narrow'),
  };
}

/** What each chart that is shown is made of, and its texts that are cut or on one another. */
export function inspectCharts(): { title: string; marks: number; smallestText: number; faults: string[] }[] {
  const visible = [...document.querySelectorAll('figure > svg')].filter(
    (svg) => getComputedStyle(svg).display !== 'none',
  );
  return visible.map((svg) => {
    const frame = svg.getBoundingClientRect();
    const shapes = [...svg.querySelectorAll('path, rect, line, polyline, polygon, circle')];
    const marks = shapes.filter((shape) => {
      const { width, height } = shape.getBBox();
      return shape.closest('defs') === null && Math.max(width, height) > 0;
    });
    const texts = [...svg.querySelectorAll('text')].map((text) => ({
      text: text.textContent ?? '',
      box: text.getBoundingClientRect(),
      size: Number.parseFloat(getComputedStyle(text).fontSize) * (frame.width / svg.viewBox.baseVal.width),
    }));
    const faults = texts.flatMap(({ text, box }, index) => {
      const inside =
        box.left >= frame.left &&
        box.right <= frame.right &&
        box.top >= frame.top &&
        box.bottom <= frame.bottom;
      const over = texts.slice(index + 1).filter(({ box: other }) => {
        const across = Math.min(box.right, other.right) - Math.max(box.left, other.left);
        const down = Math.min(box.bottom, other.bottom) - Math.max(box.top, other.top);
        return across > 1 && down > 4;
      });
      return [...(inside ? [] : [`${text} is cut`]), ...over.map((other) => `${text} is on ${other.text}`)];
    });
    const smallestText = Math.min(...texts.map(({ size }) => size));
    return {
      title: svg.querySelector('title')?.textContent ?? '',
      marks: marks.length,
      smallestText,
      faults,
    };
  });
}

/** The colours of texts and lines, and the texts that are too faint on what is behind them. */
export function inspectColours(): { texts: string[]; lines: string[]; faint: string[] } {
  const parts = (colour: string): number[] => (colour.match(/[\d.]+/g) ?? []).map(Number);
  const luminance = (colour: string): number => {
    const [red = 0, green = 0, blue = 0] = parts(colour).map((part) =>
      part / 255 <= 0.03928 ? part / 255 / 12.92 : ((part / 255 + 0.055) / 1.055) ** 2.4,
    );
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
  };
  const behind = (element: PageElement | null): string => {
    if (element === null) return 'rgb(255, 255, 255)';
    const { backgroundColor } = getComputedStyle(element);
    return parts(backgroundColor)[3] === 0 ? behind(element.parentElement) : backgroundColor;
  };
  const written = [...document.querySelectorAll('body *')].filter((element) => {
    const own = [...element.childNodes].some(
      (node) => node.nodeType === 3 && (node.textContent ?? '').trim() !== '',
    );
    return (
      own && element.tagName !== 'title' && element.tagName !== 'desc' && element.getClientRects().length > 0
    );
  });
  const texts = written.map((element) => {
    const { color, fill } = getComputedStyle(element);
    return { element, colour: element.closest('svg') !== null ? fill : color };
  });
  const faint = texts.filter(({ element, colour }) => {
    const [one = 0, other = 0] = [luminance(colour), luminance(behind(element))].sort((a, b) => b - a);
    return (one + 0.05) / (other + 0.05) < 4.5;
  });
  const strokes = [...document.querySelectorAll('figure > svg.wide path, figure > svg.wide polyline')];
  return {
    texts: texts.map(({ colour }) => colour),
    lines: strokes.map((line) => getComputedStyle(line).stroke).filter((stroke) => stroke !== 'none'),
    faint: faint.map(({ element, colour }) => `${colour}: ${element.textContent}`),
  };
}
