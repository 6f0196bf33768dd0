# Node 22 on Debian 12, pinned by the digest of its multi-platform index. Dependabot updates it (.github/dependabot.yml).
FROM node:22.23.3-bookworm-slim@sha256:43ac6c60b8f89723f746e8a92ce91abd5017e627ce1ddfe4238355d3a30b772c AS base
WORKDIR /app

# With the development dependencies: esbuild, and the Prisma CLI that generates the client.
FROM base AS build
COPY package.json package-lock.json .npmrc prisma.config.ts ./
COPY prisma prisma
RUN npm ci
COPY scripts scripts
COPY src src
RUN npm run build && rm dist/.build.json

# --omit=optional leaves out the compiler, which is an optional peer of @prisma/client. --ignore-scripts: dist/ contains the
# generated client, so nothing is generated here.
FROM base AS dependencies
COPY package.json package-lock.json .npmrc ./
RUN npm ci --omit=dev --omit=optional --ignore-scripts

FROM base
LABEL org.opencontainers.image.title="Stampede" \
      org.opencontainers.image.description="A flash-sale and inventory service with interchangeable stock-deduction strategies" \
      org.opencontainers.image.licenses="MIT" \
      org.opencontainers.image.base.name="docker.io/library/node:22.23.3-bookworm-slim"
# The service listens on all addresses and therefore requires AUTH; see docs/explanation/security.md.
ENV NODE_ENV=production HOST=0.0.0.0
COPY package.json LICENSE ./
COPY --from=dependencies /app/node_modules node_modules
COPY --from=build /app/dist dist
COPY prisma/schema.prisma prisma/
COPY prisma/migrations prisma/migrations
COPY lua lua
# The user node of the base image, as a number: an orchestrator can then verify that it is not root. It owns no file in /app.
USER 1000:1000
EXPOSE 3000
STOPSIGNAL SIGTERM
# Checks the process, not its stores: a restart would not repair them.
HEALTHCHECK --interval=10s --timeout=3s --start-period=30s --retries=3 \
  CMD ["node", "-e", "fetch(`http://127.0.0.1:${process.env.PORT || 3000}/healthz`).then((r) => process.exit(r.ok ? 0 : 1), () => process.exit(1))"]
CMD ["node", "--enable-source-maps", "--max-semi-space-size=64", "dist/commands/start.js"]
