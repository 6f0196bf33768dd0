/** Takes pictures of a page for documents, light and dark, with the local Chromium. */
import { writeFile } from 'node:fs/promises';
import { chromium, type Page } from 'playwright-core';
import { findProgram } from '../../lab/kit/processes.ts';

interface Shot {
  readonly url: string;
  /** Where the light picture goes; the other has `-dark` before the extension. */
  readonly path: string;
  readonly viewport: { readonly width: number; readonly height: number };
  /** Pixels of the picture for one of the page; 1 by default. */
  readonly scale?: number;
  /** Whether the whole scrolling page is taken. */
  readonly fullPage: boolean;
  /** CSS of the picture only. */
  readonly style?: string;
  /** Brings the page into the state that the picture shows. */
  readonly prepare: (page: Page) => Promise<unknown>;
}

/** @returns the names of the files; none when no Chromium is installed */
export async function takePictures({
  url,
  path,
  viewport,
  scale = 1,
  fullPage,
  style,
  prepare,
}: Shot): Promise<string[]> {
  const executablePath = process.env.CHROMIUM ?? findProgram('chromium') ?? findProgram('google-chrome');
  if (executablePath === null) return [];
  // Chromium's sandbox refuses root.
  const args = process.getuid?.() === 0 ? ['--no-sandbox'] : [];
  // By default, the browser ends this process on the first signal.
  const signals = { handleSIGINT: false, handleSIGTERM: false, handleSIGHUP: false };
  const browser = await chromium.launch({ executablePath, args, ...signals });
  try {
    const options = { viewport, deviceScaleFactor: scale, reducedMotion: 'reduce', bypassCSP: true } as const;
    const page = await browser.newPage(options);
    await page.goto(url);
    await prepare(page);
    const paths = { light: path, dark: path.replace(/\.png$/, '-dark.png') };
    for (const [colorScheme, to] of Object.entries(paths) as ['light' | 'dark', string][]) {
      await page.emulateMedia({ colorScheme });
      await page.waitForTimeout(300); // charts are drawn in the next frame
      await writeFile(to, await page.screenshot({ fullPage, ...(style !== undefined && { style }) }));
    }
    return Object.values(paths);
  } finally {
    await browser.close();
  }
}
