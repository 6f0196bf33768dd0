# Build stage, with the development dependencies: the compiler, and the Prisma CLI that generates the client.
FROM node:22-bookworm-slim AS build
WORKDIR /app
COPY package.json package-lock.json .npmrc prisma.config.ts ./
COPY prisma prisma
RUN npm ci
COPY tsconfig.json tsconfig.build.json ./
COPY scripts scripts
COPY src src
# --omit=optional removes the Prisma CLI and the compiler, which are also optional peers of @prisma/client. --ignore-scripts:
# dist/ contains the compiled client, so nothing is generated after the prune.
RUN npm run build && npm prune --omit=dev --omit=optional --ignore-scripts

# Final stage, with the production dependencies.
FROM node:22-bookworm-slim
ENV NODE_ENV=production
WORKDIR /app
COPY --from=build /app/package.json ./
COPY --from=build /app/node_modules node_modules
COPY --from=build /app/dist dist
COPY prisma prisma
COPY lua lua
USER node
EXPOSE 3000
CMD ["node", "--enable-source-maps", "--max-semi-space-size=64", "dist/main.js"]
