/** The API description, as a document and as a page. With ADMIN_PORT, they are on that port only. */
import { Router } from 'express';
import { type Assets, type Body, bodyOf, sendBody } from '../assets.ts';
import { openApiDocument } from '../openapi.ts';

export function docsRoutes(assets: Assets): Router {
  const router = Router();
  let document: Promise<Body> | null = null;
  router.get('/openapi.json', async (req, res) => {
    document ??= bodyOf('json', JSON.stringify(openApiDocument())); // few processes are asked for it
    sendBody(req, res, await document);
  });
  const docs = bodyOf('html', docsPage(assets));
  router.get('/docs', async (req, res) => sendBody(req, res, await docs));
  return router;
}

/** Swagger UI: its style and script are built like those of the pages. */
const docsPage = (assets: Assets): string => `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Stampede: the API</title>
<link rel="stylesheet" href="${assets.url('docs.css')}">
<link rel="icon" type="image/svg+xml" href="${assets.url('icon.svg')}">
</head>
<body>
<div id="api"></div>
<script type="module" src="${assets.url('docs.js')}"></script>
</body>
</html>
`;
