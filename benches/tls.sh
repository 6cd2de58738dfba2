#!/bin/bash
# What TLS and checksums cost over loopback, beside what openssl encrypts with one thread.
# Usage: benches/tls.sh PATH-OF-MOONRAIL
set -euo pipefail
moonrail=$(realpath "$1")
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
export MOONRAIL_PATHS=tcp

key=(-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes)
openssl req -x509 "${key[@]}" -keyout ca.key -out ca.pem -subj /CN=authority -days 2 2>/dev/null
openssl req "${key[@]}" -keyout one.key -out one.csr -subj /CN=one 2>/dev/null
echo 'subjectAltName=IP:127.0.0.1' >names
openssl x509 -req -in one.csr -CA ca.pem -CAkey ca.key -CAcreateserial -out one.pem -days 2 -extfile names 2>/dev/null
chmod 600 ./*.key

for direction in "" -decrypt; do
    openssl speed $direction -evp aes-256-gcm -bytes 16384 -seconds 1 2>/dev/null | tail -1
done
for mode in clear checksum tls; do
    options=()
    unset MOONRAIL_CHECKSUM
    [ $mode = tls ] && options=(--tls-cert one.pem --tls-key one.key --tls-ca ca.pem)
    [ $mode = checksum ] && export MOONRAIL_CHECKSUM=1
    "$moonrail" serve --size 256MiB --json "${options[@]}" >serve.json &
    server=$!
    for _ in $(seq 100); do [ -s serve.json ] && break || sleep 0.1; done
    session=$(python3 -c 'import json; print(json.loads(open("serve.json").readline())["session"])')
    for operation in write read; do
        for shape in 64MiB:1 64KiB:128 64:1; do
            echo "$mode $operation, blocks of ${shape%:*}, ${shape#*:} a call"
            "$moonrail" bench --segment-id "$session" --operation $operation --block-size "${shape%:*}" \
                --batch-size "${shape#*:}" --threads 1 --duration 1 --buffer-size 256MiB "${options[@]}"
        done
    done
    kill -INT $server
    wait $server || true
done
