#!/bin/sh
# Makes a token and a self-signed certificate, for a first try of auth.yaml and tls.yaml.
#
#   ./make-secrets.sh FOLDER [HOST...]      for these names, and for localhost and 127.0.0.1
#
# Leaves tokens, tls.crt and tls.key in FOLDER. A deployment has its own authority instead.
set -eu

folder=${1:?usage: make-secrets.sh FOLDER [HOST...]}
shift
names=DNS:localhost,IP:127.0.0.1
for host; do
    names=$names,DNS:$host
done

umask 077
mkdir -p "$folder"
printf '%s for whoever compiles\n' "$(openssl rand -hex 32)" >"$folder/tokens"
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 90 \
    -subj /CN=tilelang-otel-collector -addext "subjectAltName=$names" \
    -keyout "$folder/tls.key" -out "$folder/tls.crt" 2>/dev/null
