#!/bin/sh
# Writes the passwords and secrets that docker-compose.yml requires to .env, readable by its owner only. Keeps existing entries, so it
# can run again.
set -eu
cd "$(dirname "$0")/.."
umask 077
touch .env
chmod 600 .env
[ -z "$(tail -c 1 .env)" ] || echo >>.env

add() { # add NAME VALUE
  grep -q "^$1=." .env && return
  printf '%s=%s\n' "$1" "$2" >>.env
  echo ".env: added $1"
}
# Hexadecimal, because most of them become part of a URL.
for name in POSTGRES_PASSWORD POSTGRES_SERVICE_PASSWORD REDIS_PASSWORD REDIS_SERVICE_PASSWORD ADMIN_TOKEN; do
  add "$name" "$(od -An -N 24 -tx1 /dev/urandom | tr -d ' \n')"
done
add TICKET_SECRETS "$(head -c 32 /dev/urandom | base64)"
